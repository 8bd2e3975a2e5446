# title: bash: jobs, traps, coprocesses, process substitution
# area: Shells and core tools
diff <(seq 5) <(seq 2 6) || true
coproc cat; echo hi >&"${COPROC[1]}"; read -r l <&"${COPROC[0]}"; echo "$l"; kill $COPROC_PID
( trap 'echo term; exit 7' TERM; kill -TERM $BASHPID; sleep 5 ) || echo $?
set -m; sleep 30 & kill -STOP %1; sleep 0.2; jobs | tr -s ' '; kill -CONT %1; kill %1; wait %1 || echo $?
printf '%s\n' {1..3}{a,b} | xargs -P4 -n1 echo | sort; ulimit -n >/dev/null; exec 9<>/tmp/f; echo fd >&9; cat /tmp/f; cat < /dev/null; echo "${BASH_VERSION%%.*}"
