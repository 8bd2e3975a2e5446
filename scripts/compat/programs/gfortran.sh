# title: gfortran: numerics
# area: Languages
printf 'program p\n real(8)::a(200,200),b(200,200)\n integer::i,j\n do i=1,200\n do j=1,200\n a(i,j)=i*j\n end do\n end do\n b=matmul(a,a)\n print *, b(10,10)\nend program\n' > a.f90
gfortran -O2 a.f90 -o a && ./a
