# title: strace: ptrace of a child
# area: Debuggers
# why: . => gVisor lets a process trace its children; which system calls the C library makes can differ.
strace -f -e trace=openat,execve -o log cat /etc/hostname; grep -c execve log; grep -c hostname log
