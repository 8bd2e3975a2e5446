package deb

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

// archiveOf makes an archive of packages that are written as "name version: field
// value; field value".
func archiveOf(t *testing.T, lines ...string) *Archive {
	t.Helper()
	x := newIndex("amd64")
	var text bytes.Buffer
	for _, line := range lines {
		head, fields, _ := strings.Cut(line, ": ")
		name, version, _ := strings.Cut(head, " ")
		fmt.Fprintf(&text, "Package: %s\nVersion: %s\nArchitecture: amd64\nFilename: pool/%s.deb\nSize: 10\nSHA256: %s\n", name, version, name, strings.Repeat("a", 64))
		for f := range strings.SplitSeq(fields, "; ") {
			if k, v, ok := strings.Cut(f, " "); ok {
				fmt.Fprintf(&text, "%s: %s\n", k, v)
			}
		}
		text.WriteByte('\n')
	}
	if err := x.read(&text, source{uri: "http://mirror.test/d"}, false); err != nil {
		t.Fatal(err)
	}
	x.finish()
	return &Archive{opt: Options{Progress: func(api.TemplateProgress) {}}, sources: []source{{uri: "http://mirror.test/d", suite: "s"}}, index: x}
}

func TestResolve(t *testing.T) {
	all := []string{
		"apt 1: Depends libc", "libc 2: ", "dash 1: Essential yes; Pre-Depends libc (>= 1)",
		"one 1: Depends two | three", "two 1: Conflicts libc", "three 1: ",
		"mta 1: Depends default-mta | mail", "exim 1: Provides mail; Priority optional", "postfix 2: Provides mail; Priority standard", "old 1: ", "old 2: ",
		"needs-old 1: Depends old (<< 2)", "ver 1: Depends virt (>= 2)", "virt1 1: Provides virt", "virt2 1: Provides virt (= 3)",
		"any 1: Depends tool:any", "tool 1: Multi-Arch allowed", "any2 1: Depends plain:any", "plain 1: ",
		"loop-a 1: Depends loop-b", "loop-b 1: Depends loop-a", "foreign 1: Depends tool:arm64",
		"breaker 1: Breaks three (<< 2)", "self 1: Conflicts mail; Provides mail; Priority extra", "deep 1: Depends deeper", "deeper 1: Depends nothing (>= 3)",
		"rec 1: Recommends three",
	}
	for _, tt := range []struct{ ask, want, wrong string }{
		{"", "apt dash libc", ""},
		{"one", "one three", ""}, // two would conflict with libc
		{"mta", "postfix mta", ""},
		{"mta exim", "exim mta", ""},
		{"ver", "virt2 ver", ""},
		{"any", "tool any", ""},
		{"any2", "", "any2 1: needs plain:any"},
		{"loop-a", "loop-b loop-a", ""},
		{"foreign", "", "needs tool:arm64"},
		{"old=1 needs-old", "old needs-old", ""},
		{"needs-old", "", "there is old 2"},
		{"old=3", "", `no version "3" here, but 2, 1`},
		{"virt", "", "virtual, and provided by"},
		{"nosuch", "", "there is no package nosuch"},
		{"../etc", "", "not the name"},
		{"one breaker", "", "one 1: two conflicts with libc"},
		{"self exim", "", "conflicts with"},
		{"deep", "", "deep 1 -> deeper 1: needs nothing (>= 3), which is not to be had"},
		{"rec", "rec", ""},
	} {
		set, err := archiveOf(t, all...).Resolve(strings.Fields(tt.ask))
		var typed *api.Error
		if err != nil {
			if tt.wrong == "" || !strings.Contains(err.Error(), tt.wrong) || !errors.As(err, &typed) || typed.Hint == "" {
				t.Errorf("%q: %v, want %q", tt.ask, err, tt.wrong)
			}
			continue
		}
		var got []string
		for _, p := range set.Packages {
			got = append(got, p.Name)
		}
		want := strings.Fields(tt.want)
		if tt.ask != "" {
			want = append(want, "apt", "dash", "libc")
		}
		slices.Sort(want)
		sorted := slices.Sorted(slices.Values(got))
		if tt.wrong != "" || !slices.Equal(sorted, want) {
			t.Errorf("%q: %v, want %v %s", tt.ask, got, want, tt.wrong)
		}
		again, err := archiveOf(t, all...).Resolve(strings.Fields(tt.ask))
		if err != nil || again.Key() != set.Key() {
			t.Errorf("%q: another set the second time", tt.ask)
		}
		if slices.Index(got, "libc") > slices.Index(got, "dash") {
			t.Errorf("%q: %v is no order to unpack in", tt.ask, got)
		}
	}
}

func TestIndexRefuses(t *testing.T) {
	good := "Package: aa\nVersion: 1\nArchitecture: amd64\nFilename: pool/a.deb\nSize: 10\nSHA256: " + strings.Repeat("a", 64) + "\n"
	for _, tt := range []struct{ from, to string }{
		{"", ""}, {"pool/a.deb", "../a.deb"}, {"pool/a.deb", "/a.deb"}, {"pool/a.deb", "a?b"}, {"Size: 10", "Size: -1"}, {"Size: 10", "Size: 99999999999999"},
		{"aa", "a/a"}, {"Version: 1", "Version: 1/2"}, {strings.Repeat("a", 64), "beef"},
	} {
		x := newIndex("amd64")
		err := x.read(strings.NewReader(strings.Replace(good, tt.from, tt.to, 1)), source{}, false)
		if (err == nil) != (tt.from == "") {
			t.Errorf("%q: %v", tt.to, err)
		}
	}
}
