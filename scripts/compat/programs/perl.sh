# title: Perl: regular expressions, fork, sockets, sysopen
# area: Languages
perl -MIO::Socket::INET -MSocket -MFcntl -e '$_="a1b22c333"; print join(",",/(\d+)/g),"\n"; pipe(R,W); unless(fork){print W "kid\n"; exit 3} close W; print <R>; wait; print $?>>8,"\n"; sysopen(F,"x",O_RDWR|O_CREAT|O_EXCL,0640) or die; printf "%o\n",(stat F)[2]&07777; print flock(F,2)?"locked\n":"no\n"; socketpair(A,B,AF_UNIX,SOCK_STREAM,0); syswrite A,"pair\n"; sysread B,$b,9; print $b'
