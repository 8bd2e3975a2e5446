# title: gdb: breakpoints, backtrace, memory
# area: Debuggers
printf 'int f(int x){return x*2;}\nint main(){int a=21;return f(a)-42;}\n' > a.c && gcc -g -O0 a.c -o a
gdb -q -batch -ex 'break f' -ex run -ex bt -ex 'print x' -ex finish -ex continue ./a 2>/dev/null | grep -E '^(#|\$|Value|\[Inferior)' | sed -E 's/0x[0-9a-f]+/ADDR/g; s/process [0-9]+/process N/'
