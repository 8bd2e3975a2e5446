# title: Valgrind: memcheck finds a leak
# area: Debuggers
printf '#include <stdlib.h>\nint main(){char*p=malloc(100);p[0]=1;p=0;return 0;}\n' > a.c && gcc -g a.c -o a; valgrind -q --leak-check=full ./a 2>&1 | grep -oE '[0-9]+ bytes in [0-9]+ blocks are definitely lost' || true
