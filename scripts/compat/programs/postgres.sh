# title: PostgreSQL: initdb, server, transactions
# area: Databases
# flags: --memory 2g
export PATH=$PATH:/usr/lib/postgresql/15/bin PGHOST=/tmp
initdb -D /tmp/pg -U postgres >/dev/null
pg_ctl -D /tmp/pg -w -l /tmp/pg.log -o '-k /tmp -c listen_addresses=127.0.0.1' start >/dev/null
psql -U postgres -Atc 'create table t as select g, md5(g::text) m from generate_series(1,20000) g; select count(*), min(m) from t'
psql -U postgres -Atc 'create index on t(m); analyze t; explain (costs off) select * from t where m='"'x'"
psql -h 127.0.0.1 -U postgres -Atc 'select version() like $$PostgreSQL 15%$$'
pgbench -U postgres -i -q -s 1 >/dev/null 2>&1 || true
pg_ctl -D /tmp/pg -m fast stop >/dev/null && echo stopped
