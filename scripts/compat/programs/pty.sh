# title: Pseudo-terminals: script, expect, pexpect, stty
# area: Kernel interfaces
script -qec 'tty | cut -d/ -f1-3; stty size; stty -a | grep -o "icanon"' /dev/null | tr -d '\r'
expect -c 'log_user 0; spawn bash --norc; send "echo \$((6*7))\r"; expect "42"; puts ok; send "exit\r"; expect eof'
python3 - <<'P'
import pexpect
c=pexpect.spawn('python3 -q'); c.expect('>>> '); c.setwinsize(30,100); c.sendline('import os; print(os.get_terminal_size())'); c.expect('columns=100, lines=30'); c.sendintr(); c.expect('KeyboardInterrupt'); c.sendeof(); c.expect(pexpect.EOF); print('ok')
P
