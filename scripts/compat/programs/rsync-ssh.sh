# title: rsync, ssh-keygen, a private sshd over loopback
# area: Servers
mkdir -p s/x d && seq 1000 > s/x/f && ln -s f s/x/l && rsync -a --delete s/ d/ && diff -r s d && echo synced
ssh-keygen -q -t ed25519 -N '' -f k && ssh-keygen -l -f k.pub | cut -d' ' -f1,4; ssh-keygen -q -t ed25519 -N '' -f h
mkdir -p ~/.ssh; cp k.pub ~/.ssh/authorized_keys; chmod 700 ~/.ssh
/usr/sbin/sshd -f /dev/null -o Port=2222 -o ListenAddress=127.0.0.1 -o HostKey=$PWD/h -o PidFile=/tmp/sshd.pid -o StrictModes=no -o UsePAM=no -o AuthorizedKeysFile=/home/agent/.ssh/authorized_keys -E /tmp/sshd.log
sleep 1; ssh -q -p 2222 -i k -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null agent@127.0.0.1 'echo remote $((1+1))'
