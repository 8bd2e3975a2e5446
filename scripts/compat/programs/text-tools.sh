# title: awk, sed, jq, grep, bc, diff, patch, vim in ex mode
# area: Shells and core tools
seq 1000 | gawk '{s+=$1}END{printf "%d %s\n",s,strftime("%Y",0,1)}'; seq 10 | mawk 'NR%3==0'; echo '{"a":[1,{"b":2}]}' | jq -c '.a[1].b, (.a|length)'; echo 'scale=30; 4*a(1)' | bc -l
printf 'a\nb\nc\n' > o; sed 's/b/B/' o > n; diff -u o n > p || true; patch -s o p; cmp o n && echo patched; vim.tiny -es -u NONE o -c '%s/c/C/' -c wq; cat o
