# title: gcc and g++: C, C++ with threads, sanitizers' absence, LTO
# area: Languages
cat > a.c <<'C'
#include <stdio.h>
#include <pthread.h>
static long n; static pthread_mutex_t m=PTHREAD_MUTEX_INITIALIZER;
static void*w(void*x){for(int i=0;i<100000;i++){pthread_mutex_lock(&m);n++;pthread_mutex_unlock(&m);}return 0;}
int main(){pthread_t t[8];for(int i=0;i<8;i++)pthread_create(t+i,0,w,0);for(int i=0;i<8;i++)pthread_join(t[i],0);printf("%ld\n",n);}
C
gcc -O2 -pthread a.c -o a && ./a
cat > b.cc <<'C'
#include <iostream>
#include <thread>
#include <vector>
#include <map>
#include <filesystem>
int main(){std::map<std::string,int>m;for(int i=0;i<1000;i++)m[std::to_string(i)]=i;std::cout<<m["777"]<<"\n";std::vector<std::thread>v;std::atomic<int>n{0};for(int i=0;i<4;i++)v.emplace_back([&]{n+=5;});for(auto&t:v)t.join();std::cout<<n<<" "<<std::filesystem::exists("/etc/passwd")<<"\n";}
C
g++ -std=c++17 -O2 -flto b.cc -o b && ./b
gcc -fsanitize=undefined -O1 a.c -o c && ./c
