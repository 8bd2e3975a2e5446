# title: git: commit, merge, rebase, clone, gc, fsck
# area: Tools
export GIT_AUTHOR_DATE='2024-01-01T00:00:00Z' GIT_COMMITTER_DATE='2024-01-01T00:00:00Z'
git config --global user.email a@example.test; git config --global user.name a; git config --global init.defaultBranch main
git init -q r && cd r
for i in $(seq 1 50); do echo $i > f$i; git add f$i; git commit -qm "c$i"; done
git checkout -qb side HEAD~10; echo x > side; git add side; git commit -qm side
git rebase -q main; git checkout -q main; git merge -q side --no-ff -m merge
git gc -q; git fsck 2>&1; git rev-parse HEAD; git log --oneline | wc -l
cd ..; git clone -q file:///workspace/r c; git -C c status --short | wc -l; git -C c log -1 --format=%H
git -C r daemon --base-path=/workspace --export-all --reuseaddr --listen=127.0.0.1 --port=9418 --detach
sleep 1; git clone -q git://127.0.0.1/r d; ls d | wc -l
