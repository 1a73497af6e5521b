create table word (id integer primary key, name text, size integer);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 40000)
    insert into word select i, printf('%x', i * 2654435761 % 4294967296), i * 7919 % 1000 from n;
create index by_size on word (size, name);
begin; update word set size = size + 1 where id % 3 = 0; rollback;
begin; delete from word where id % 5 = 0; commit;
select count(*), sum(size), max(name) from word;
select size, count(*) from word group by size order by 2 desc, 1 limit 5;
with recursive n(i, s) as (select 1, 0 union all select i + 1, (s * 31 + i) % 1000003 from n
    where i < 300000) select s from n order by i desc limit 1;
pragma integrity_check; pragma journal_mode = delete; vacuum;
