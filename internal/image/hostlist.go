package image

import (
	"runtime"
	"strings"
)

// A group is one part of the host template. Patterns are those of path.Match;
// $A stands for the machine's architecture as compilers spell it.
type group struct {
	name string
	// optional groups are taken while they fit; the manifest names the others.
	optional bool
	commands []string // names in the directories for programs
	trees    []string // files and whole directories
	prune    []string // left out of trees: paths with a slash, else names
}

// programDirs are searched for commands. It is deliberately not PATH: that is
// one person's, and may name shims that lead into a home directory.
var programDirs = []string{
	"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin",
}

// hostRoots are the only places that the host template reads, besides etcFiles.
var hostRoots = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/etc/alternatives"}

// etcFiles is all of the host's /etc that may get in. Accounts, names and
// addresses of the host are not among it.
var etcFiles = []string{
	"/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.cache", "/etc/ld-musl-$A.path",
	"/etc/ssl/certs", "/etc/ssl/cert.pem", "/etc/ssl/openssl.cnf", "/etc/ssl1.1", "/etc/ca-certificates.conf",
	"/etc/pki/tls/certs", "/etc/pki/tls/cert.pem", "/etc/pki/tls/openssl.cnf", "/etc/pki/ca-trust/extracted",
	"/etc/ca-certificates/extracted",
	"/etc/mime.types", "/etc/protocols", "/etc/services", "/etc/rpc", "/etc/ethertypes",
	"/etc/os-release", "/etc/debian_version", "/etc/alpine-release", "/etc/redhat-release",
	"/etc/inputrc", "/etc/terminfo", "/etc/magic", "/etc/perl", "/etc/python3", "/etc/python3.*",
	"/etc/crypto-policies/back-ends", "/etc/crypto-policies/config",
}

// hostPrune is left out of every group.
var hostPrune = []string{
	"/usr/share/doc", "/usr/share/man", "/usr/share/info", "/usr/share/locale", "/usr/share/icons",
	"/usr/share/zoneinfo/right", "/usr/share/zoneinfo/posix", "lost+found",
}

// maxArchive is the size above which a static library stays out, in bytes.
const maxArchive = 20 << 20

var hostGroups = []group{
	{
		name: "system",
		commands: words(`bash dash sh rbash ash busybox zsh
			[ arch b2sum base32 base64 basename basenc cat chcon chgrp chmod chown cksum comm cp csplit
			cut date dd df dir dircolors dirname du echo env expand expr factor false fmt fold groups head
			hostid id install join link ln logname ls md5sum mkdir mkfifo mknod mktemp mv nice nl nohup
			nproc numfmt od paste pathchk pinky pr printenv printf ptx pwd readlink realpath rm rmdir
			runcon seq sha1sum sha224sum sha256sum sha384sum sha512sum shred shuf sleep sort split stat
			stdbuf stty sum sync tac tail tee test timeout touch tr true truncate tsort tty uname
			unexpand uniq unlink users vdir wc who whoami yes coreutils
			find xargs locate grep egrep fgrep rgrep zgrep sed awk gawk mawk nawk original-awk
			tar gzip gunzip zcat zcmp zdiff zless zmore znew gzexe xz unxz xzcat xzgrep lzma unlzma lzmainfo
			bzip2 bunzip2 bzcat bzgrep zstd unzstd zstdcat zstdmt lz4 unzip zip zipinfo funzip 7z 7za cpio
			diff diff3 sdiff cmp patch less more pager file which which.debianutils whereis tree bc dc ed
			ps top free kill pkill pgrep pidof pmap pwdx uptime vmstat w watch slabtop sysctl
			cal column col colrm hexdump hd look rev script scriptreplay ul getopt flock logger
			lscpu lsblk lsmem mcookie namei nsenter renice setsid setarch taskset unshare uuidgen
			linux64 x86_64 i386 chrt ionice prlimit mount umount findmnt mountpoint dmesg tset reset clear
			tput tic toe infocmp tabs xxd run-parts tempfile ischroot iconv locale localedef getent getconf
			ldd ldconfig ldconfig.real nologin su chsh strace ltrace lsof time rename envsubst gettext
			gettext.sh ngettext m4 rsync openssl c_rehash curl wget ssh scp sftp ssh-keygen ssh-keyscan nc
			nc.openbsd nc.traditional jq yq sqlite3 rg fd fdfind nano vi vim vim.basic vim.tiny editor`),
		trees: []string{
			"/usr/lib/file", "/usr/share/file", "/usr/share/misc/magic*", "/usr/share/zoneinfo",
			"/usr/share/terminfo", "/usr/lib/terminfo", "/lib/terminfo", "/usr/share/tabset",
			"/usr/lib/locale/C*", "/usr/share/ca-certificates", "/usr/local/share/ca-certificates",
			"/usr/share/pki/ca-trust-source", "/usr/lib/ssl", "/usr/lib/$A-*/gconv", "/usr/lib64/gconv", "/usr/lib/gconv",
			"/usr/lib/$A-*/ossl-modules", "/usr/lib64/ossl-modules", "/usr/lib/ossl-modules",
			"/usr/lib/$A-*/engines-*", "/usr/lib/$A-*/libnss_*", "/lib/$A-*/libnss_*", "/lib64/libnss_*",
			"/usr/lib/$A-*/libgcc_s.so*", "/lib/$A-*/libgcc_s.so*", "/lib64/libgcc_s*", "/usr/lib/libgcc_s.so*",
			"/lib/ld-*", "/lib64/ld-*", "/usr/libexec/coreutils", "/usr/lib/coreutils", "/usr/share/awk",
			"/usr/lib/$A-*/gawk", "/usr/lib/os-release", "/usr/lib/mime", "/usr/share/misc/mime*",
		},
		prune: []string{"gconv-modules.d.bak"},
	},
	{
		name:     "git",
		commands: words(`git git-* scalar`),
		trees:    []string{"/usr/lib/git-core", "/usr/libexec/git-core", "/usr/share/git-core"},
	},
	{
		name:     "perl",
		commands: words(`perl perl5* prove cpan corelist json_pp pod2text perldoc shasum`),
		trees: []string{
			"/usr/lib/$A-*/perl*", "/usr/share/perl", "/usr/share/perl5", "/usr/lib/perl5", "/usr/lib64/perl5",
			"/usr/local/lib/$A-*/perl", "/usr/local/share/perl",
		},
		prune: []string{"*.pod"},
	},
	{
		name: "python",
		commands: words(`python python3 python3.* pip pip3 pip3.* pydoc3 pydoc3.* 2to3 2to3-* virtualenv pytest
			pytest-3 ipython ipython3 uv uvx poetry black ruff mypy flake8`),
		trees: []string{
			"/usr/lib/python3", "/usr/lib/python3.*", "/usr/lib64/python3*", "/usr/local/lib/python3*",
			"/usr/share/python3", "/usr/share/python-wheels", "/usr/local/include/python3*",
			"/usr/local/lib/libpython3*",
		},
		prune: []string{
			"/usr/lib/python3.*/test", "/usr/lib/python3.*/config-*", "/usr/lib64/python3.*/test",
			"/usr/local/lib/python3.*/test", "/usr/local/lib/python3.*/config-*",
		},
	},
	{
		name:     "node",
		commands: words(`node nodejs npm npx corepack yarn yarnpkg pnpm tsc ts-node tsx deno bun`),
		trees: []string{
			"/usr/lib/node_modules", "/usr/local/lib/node_modules", "/usr/share/nodejs", "/usr/share/node_modules",
			"/usr/lib/nodejs",
		},
		prune: []string{"/usr/lib/node_modules/npm/man", "/usr/local/lib/node_modules/npm/man", "/usr/lib/node_modules/npm/docs", "/usr/local/lib/node_modules/npm/docs"},
	},
	{
		name: "cc",
		commands: words(`cc c++ c89 c99 c89-gcc c99-gcc cpp cpp-* gcc gcc-* g++ g++-* gcov gcov-* as ld ld.* ar nm objdump
			objcopy strip ranlib readelf size strings addr2line c++filt elfedit gprof dwp $A-*-linux-*
			make gmake make-first-existing-target pkg-config pkgconf ninja`),
		trees: append([]string{
			"/usr/lib/gcc", "/usr/libexec/gcc", "/usr/lib/$A-*/ldscripts", "/usr/lib/compat-ld", "/usr/lib/gold-ld",
			"/usr/lib/bfd-plugins", "/usr/lib/$A-*/bfd-plugins", "/usr/lib/cpp", "/usr/lib/ldscripts",
			"/usr/include/*.h", "/usr/include/c++", "/usr/include/linux", "/usr/include/asm*", "/usr/include/bits",
			"/usr/include/gnu", "/usr/include/sys", "/usr/include/net*", "/usr/include/arpa", "/usr/include/rpc*",
			"/usr/include/protocols", "/usr/include/$A-*",
		}, inLibDirs(`*crt*.o libc.so libc.a libc_nonshared.a libm.so libm.a libm-*.a libmvec* libpthread.* libdl.*
			librt.* libutil.* libcrypt.* libresolv.* libstdc++* libanl.* libatomic* libgomp*`)...),
		prune: []string{"libg.a", "LLVMgold.so"},
	},
	{
		name:     "go",
		commands: words(`go gofmt`),
		trees:    []string{"/usr/local/go", "/usr/lib/go", "/usr/lib/go-1*", "/usr/share/go-1*", "/usr/lib/golang"},
		prune: []string{
			"testdata", "*_test.go", "/usr/local/go/test", "/usr/local/go/doc", "/usr/local/go/api", "/usr/local/go/misc",
			"/usr/local/go/pkg/obj", "/usr/share/go-1*/test", "/usr/share/go-1*/doc", "/usr/share/go-1*/api",
			"/usr/lib/golang/test", "/usr/lib/golang/doc", "/usr/lib/golang/api",
		},
	},
	{
		name:     "ruby",
		optional: true,
		commands: words(`ruby ruby[0-9]* gem gem[0-9]* irb irb[0-9]* erb rake bundle bundler`),
		trees: []string{
			"/usr/lib/ruby", "/usr/lib/$A-*/ruby", "/usr/share/rubygems-integration", "/usr/share/ruby*",
			"/usr/share/gems", "/usr/lib64/ruby", "/usr/local/lib/ruby",
		},
	},
	{
		name:     "rust", // and a toolchain of rustup's, see takeRust
		optional: true,
		commands: words(`cargo rustc rustdoc`),
		trees:    []string{"/usr/lib/rustlib", "/usr/lib64/rustlib", "/usr/local/lib/rustlib"},
		prune:    []string{"/usr/lib/rustlib/src", "/usr/lib64/rustlib/src", "/usr/local/lib/rustlib/src"},
	},
	{
		name:     "lua-tcl",
		optional: true,
		commands: words(`lua lua[0-9]* luac luac[0-9]* luajit luarocks tclsh tclsh[0-9]* expect`),
		trees:    []string{"/usr/share/lua", "/usr/lib/$A-*/lua", "/usr/lib/tcl*", "/usr/share/tcltk/tcl*"},
	},
	{
		name:     "dev",
		optional: true,
		commands: words(`cmake ctest cpack autoconf automake aclocal libtool libtoolize bison yacc flex gdb`),
		trees: append([]string{
			"/usr/include", "/usr/local/include", "/usr/share/pkgconfig", "/usr/lib/pkgconfig", "/usr/share/cmake*",
			"/usr/share/autoconf", "/usr/share/automake*", "/usr/share/aclocal*", "/usr/share/libtool", "/usr/share/bison",
			"/usr/share/gdb",
		}, inLibDirs("*.so *.a *.o pkgconfig cmake")...),
		prune: []string{"/usr/include/llvm-*", "/usr/include/valgrind", "libLLVM*", "libclang*", "libz3.*"},
	},
}

// words splits a list of names.
func words(s string) []string { return strings.Fields(s) }

// inLibDirs puts names into the directories where libraries are linked from.
func inLibDirs(names string) []string {
	var out []string
	for _, dir := range []string{"/usr/lib/$A-*/", "/usr/lib64/", "/usr/lib/"} {
		for _, n := range words(names) {
			out = append(out, dir+n)
		}
	}
	return out
}

// expand puts the architecture into patterns.
func expand(patterns []string) []string {
	arch := map[string]string{
		"amd64": "x86_64", "arm64": "aarch64", "386": "i?86", "arm": "arm", "riscv64": "riscv64",
		"ppc64le": "powerpc64le", "s390x": "s390x", "loong64": "loongarch64",
	}[runtime.GOARCH]
	out := make([]string, len(patterns))
	for i, p := range patterns {
		out[i] = strings.ReplaceAll(p, "$A", arch)
	}
	return out
}
