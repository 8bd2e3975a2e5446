package cli

// topics are pages of `berm help` that are about no verb.
var topics = map[string]string{"policy": policyAbout}

const policyAbout = `berm help policy: what a sandbox may reach, and may use

Without --allow, --policy and --learn there is no link: no name resolves and nothing
can be reached. With one of them there is a link on which everything is denied that
no rule allows. What was denied fails at once, is said when the run is over, and is
in the log.

  berm run --allow api.example.com:443 -- curl -sS https://api.example.com/
  berm run --allow preset:pip -- pip install humanize
  berm run --learn -- ./install.sh         what would it need?
  berm run --policy policy.yaml job.py

Targets, of --allow and of "allow" and "deny" in a document
  HOST[:PORT]          a name, exactly; without a port, every port
  '*.SUFFIX[:PORT]'    every name below SUFFIX, not SUFFIX itself
  ADDRESS[:PORT]       an address, or CIDR[:PORT]; IPv6 with a port as [2001:db8::/32]:443
  preset:NAME          what pip, npm, go, cargo or apt of this host is configured for;
                       the program inside is told about it, without any password
  --allow takes a rule of the document as JSON, too, to say more about a target:
    --allow '{"allow":"db.example.net:5432","sni":"any"}'
  A name counts for what was resolved inside, and a connection must carry the
  same name: TLS in its SNI, HTTP in each request's Host. What is neither needs a
  rule about addresses, or "sni: any". Addresses that are private, local or this
  host's own are refused, whatever name leads there, unless a rule names them as a
  CIDR.

The document, YAML or JSON
  egress:                              the first rule that matches wins
    - deny: "bad.example.com"
    - allow: "*.example.com:443"       quotes, because of the star
    - allow: "api.example.org:80"
      methods: [GET, HEAD]             of HTTP that is not encrypted
      paths: [/v1/]                    what a path begins with
    - allow: "db.example.net:5432"
      sni: any                         neither TLS nor HTTP: do not look for a name
    - allow: "files.example.net:443"
      rate: 10/m                       connections, or requests where they are seen; /s, /h
      connections: 4                   at one time
      bytes: 100m                      both ways
      uses: 1                          in all
      expires: 10m                     from now, or a time as 2030-01-31T12:00:00Z
    - allow: "preset:npm"
  limits:                              what no flag says
    memory_bytes: 1073741824
    timeout_seconds: 120

  limits may have timeout_seconds, memory_bytes, cpus, pids, disk_bytes and
  output_bytes; beside it stand min_isolation, ttl_seconds and
  idle_timeout_seconds. Flags win over limits. Rules of --allow stand before those
  of the file. A key that is not known is an error, with its line, and nothing is
  executed then. "egress: []" is a link on which all is denied and seen.

--learn
  Nothing gets out. Names resolve to made-up addresses, so that it shows what was
  tried and on which port, and the smallest document that would have let it
  through is printed; with --json it is in "wanted". A program that stops at its
  first failure shows only the first thing it wants: add that, and ask again with
  --json, whose "denied" has the next.

Presets
  Each asks the program of that name on this host: pip for its index and extra
  indexes, npm for its registries, go for GOPROXY and GOSUMDB, cargo for its
  registry, apt for its sources; and their indexes where they keep files. Where
  that is not wanted or not possible, --presets FILE (berm run) and "presets: FILE"
  in the daemon's config say it:

    presets:
      pip:
        hosts: [packages.example.com:443]
        files:
          /home/agent/.config/pip/pip.conf: |
            [global]
            index-url = https://packages.example.com/simple
        env: {PIP_BREAK_SYSTEM_PACKAGES: "1"}

  Any name may stand there, not only the five.
`
