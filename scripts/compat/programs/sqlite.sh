# title: SQLite: WAL, transactions, integrity, two writers
# area: Databases
sqlite3 d.db 'pragma journal_mode=wal; create table t(i integer primary key, s text);'
for n in 1 2; do ( for i in $(seq 1 50); do sqlite3 -cmd '.timeout 20000' d.db "insert into t(s) values('w$n-$i')" >/dev/null; done ) & done; wait
sqlite3 d.db 'select count(*), count(distinct s) from t; pragma integrity_check;'
sqlite3 d.db 'begin; insert into t(s) select s from t; rollback; select count(*) from t; vacuum;'
sqlite3 d.db 'pragma mmap_size=268435456; select sum(length(s)) from t'
