package cli

// runAbout is what `berm help run` says after the flags.
const runAbout = `
What it does
  A fresh sandbox with its own user-space kernel starts, the program runs in it
  as user agent in /workspace, its output comes out live, and everything is
  gone. Inside there is nothing of yours but what you pass: no environment, no
  files, no keys, and no network but what you name. Flags stop at FILE or at --; what follows belongs
  to the program. A FILE goes in alone: modules beside it need --in.

Examples
  berm run script.py 1 2 3                  a file, by its extension or #! line
  berm run --in pkg:. pkg/main.py           a file and what lies beside it
  berm run -- sh -c 'ls -la /'              a command of the template
  berm run --lang python --code 'print(1)'  code as an argument
  curl -s URL | berm run --lang bash -      code from standard input
  berm run --in data.csv --out 'plots/*.svg:pics' plot.py
                                            data.csv goes to /workspace, the
                                            pictures come back to ./pics
  berm run --here -- npm test               in a copy of this folder
  berm run --stdin -- wc -l < words.txt     standard input, when you say so
  berm run -t -- bash                       a terminal in a sandbox
  berm run --timeout 2m --memory 2g --cpus 2 train.py
  berm run --json -- python3 -c 'print(6*7)'
  berm run --allow preset:pip -- sh -c 'pip install humanize && python3 job.py'

Network
  None, until you name what may be reached: --allow, or --policy FILE. Everything
  else is denied at once, and said when the run is over. --learn lets nothing out
  and prints what would have been needed. See berm help policy.

Languages
  python (py), javascript (js, node), sh, bash, go, ruby (rb), perl (pl), if the
  template has them. Python is not buffered (PYTHONUNBUFFERED=1), so that its
  output is live and is kept when time is up. Go compiles its standard library
  anew in each sandbox: give it --timeout 2m.

Here
  --here takes the folder where you are in as a copy, .git and what git ignores
  included; what may be credentials is left out and named. The program runs in
  it, in /workspace. Nothing is written to your folder: berm diff last shows what
  changed, and berm apply last brings it back. Only what changed since the last
  run is sent. FILE may be a file of the tree. More in docs/here.md.

Files in
  --in FILE and --in DIR go to /workspace/NAME; --in DIR:. puts what is in DIR
  there; --in FILE:sub/ goes into a folder. A link that you name is followed,
  links inside of a folder are kept as links. An absolute PATH may replace files
  of the sandbox, where its user may write. A file that changes its size while it
  is copied is an error. If all of LOCAL:PATH is the name of
  something here, that is meant, colons and all. Times and the permission bits
  are kept.

Files out
  Without LOCAL the path below /workspace is kept. With LOCAL one file gets that
  name, or keeps its own if LOCAL is a folder or ends in /; for a folder or a
  glob LOCAL is the folder that all of it goes into. *, ? and [...] stay within
  one name, ** is any number of folders; a colon in a name inside is matched by
  ?. Names that start with a dot come only where the pattern writes the dot, as
  in 'out/.cfg/*'; .git, and what would make a folder a git repository, never:
  pack it into an archive. Files that are here already are replaced, and named on
  stderr if you gave no LOCAL; without LOCAL nothing that can be executed or that
  starts with a dot is replaced.
  Only regular files come back, only below the folder you name, never through a
  symlink, never setuid; at most 10000 of them, and --out-limit bytes, in a run.
  When it begins, nothing of the program runs any more. It may take 10 minutes in
  all, and a file that comes slower than 64 KiB a second is left out.
  If memory ends the sandbox, nothing comes back. What did not come is said on
  stderr, and in "denied" with --json; the exit code stays the program's. A
  folder that cannot be written and a glob that is none are refused beforehand.

Limits
  Sizes are 512k, 512m, 2g or plain bytes; times 30s, 2m. Timeout, memory, cpus
  and pids may be "unlimited": you then accept that nothing holds that cap. A
  host that cannot hold a cap refuses the run and says what to do.

Exit code
  the program's own; 128+n when signal n ended it; 124 when its time was up;
  137 when memory ended it or it was killed (Ctrl-C too); 123 when another cap
  ended it; 126, 127 when the command could not be executed or was not found;
  125 when berm could not run it or refused to, and nothing was executed, and
  when the --json report could not be written.

Output
  Without -t, and if your output is a terminal, text and plain colours pass;
  every other control sequence is shown, as \x1b, and not obeyed, and so is what
  conceals text or turns its direction. Elsewhere bytes come as they are. If
  nobody reads them, the program waits; Ctrl-C ends it all the same, and when
  its time is up berm says how much is lost.
`
