# title: make -j and CMake
# area: Tools
mkdir src && for i in $(seq 1 30); do echo "int f$i(){return $i;}" > src/f$i.c; done
{ for i in $(seq 1 30); do echo "int f$i();"; done; echo '#include <stdio.h>'; echo 'int main(){printf("%d\n",f1()+f30());}'; } > src/main.c
cat > CMakeLists.txt <<'C'
cmake_minimum_required(VERSION 3.10)
project(p C)
file(GLOB S src/*.c)
add_executable(p ${S})
C
cmake -S . -B b >/dev/null && make -s -C b -j4 >/dev/null && b/p
printf 'all: %s\n' "$(for i in $(seq 1 20); do printf 't%s ' $i; done)" > Makefile
printf 't%%:\n\t@echo done $@ > $@\n' >> Makefile; make -s -j8 && cat t* | sort | md5sum
