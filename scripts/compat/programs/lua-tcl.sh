# title: Lua and Tcl
# area: Languages
lua5.4 -e 'local t={} for i=1,1000 do t[#t+1]=i end table.sort(t,function(a,b) return a>b end) print(t[1],#t, string.format("%q","x\n"))'
echo 'puts [expr {2**64}]; puts [lsort -integer {3 1 2}]; set f [open "|echo piped"]; puts [gets $f]' | tclsh
