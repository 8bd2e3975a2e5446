package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct {
		name   string
		args   []string
		rest   []string
		dashes bool
		bad    string // part of the error
	}{
		{"file", []string{"--memory", "1g", "a.py", "--memory", "x"}, []string{"a.py", "--memory", "x"}, false, ""},
		{"equals", []string{"--memory=1g", "a.py"}, []string{"a.py"}, false, ""},
		{"dashes", []string{"--json", "--", "ls", "--json"}, []string{"ls", "--json"}, true, ""},
		{"stdin code", []string{"--lang", "sh", "-", "x"}, []string{"-", "x"}, false, ""},
		{"value looks like a flag", []string{"--code", "--", "--lang", "sh"}, nil, false, ""},
		{"short", []string{"-t", "--", "sh"}, []string{"sh"}, true, ""},
		{"unknown", []string{"--memry", "1g"}, nil, false, "flag --memry: is not known"},
		{"unknown short", []string{"-x"}, nil, false, "flag -x: is not known"},
		{"long name of short form", []string{"-json"}, nil, false, "flag -json"},
		{"short name of long form", []string{"--t"}, nil, false, "flag --t"},
		{"no value", []string{"--memory"}, nil, false, "--memory: needs a value"},
		{"switch with value", []string{"--json=maybe"}, nil, false, "is a switch"},
		{"bad size", []string{"--memory", "lots"}, nil, false, "--memory lots: is not a size"},
		{"size without unit", []string{"--memory", "512"}, nil, false, "--memory 512: has no unit"},
		{"size zero", []string{"--disk", "0"}, nil, false, "out of range"},
		{"disk unlimited", []string{"--disk", "unlimited"}, nil, false, "cannot be unlimited"},
		{"time without unit", []string{"--timeout", "30"}, nil, false, "has no unit"},
		{"time negative", []string{"--timeout", "-3s"}, nil, false, "not a time after now"},
		{"cpus", []string{"--cpus", "nan"}, nil, false, "not a number"},
		{"pids", []string{"--pids", "1.5"}, nil, false, "not a whole number"},
		{"env by name", []string{"--env", "HOME"}, nil, false, "nothing is copied"},
		{"env empty name", []string{"--env", "=x"}, nil, false, "is not K=V"},
		{"tag", []string{"--tag", "x"}, nil, false, "is not K=V"},
		{"in missing", []string{"--in", "/no/such/file"}, nil, false, "no such file"},
		{"in with dots", []string{"--in", "flags_test.go:../x"}, nil, false, ".."},
		{"out empty", []string{"--out", ":x"}, nil, false, "PATH-OR-GLOB"},
		{"out with dots", []string{"--out", "../*"}, nil, false, "--out '../*': the path inside has a .. in it"},
		{"out bad glob", []string{"--out", "["}, nil, false, "--out '[': is not a glob"},
		{"out to nowhere", []string{"--out", "x:/proc/foo"}, nil, false, "cannot be written on this host"},
		{"out empty local", []string{"--out", "x:"}, nil, false, "PATH-OR-GLOB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			rest, dashes, err := new(runOptions).flags().parse(tt.args)
			if tt.bad != "" {
				if err == nil || !strings.Contains(err.Error(), tt.bad) {
					t.Errorf("err = %v, want %q", err, tt.bad)
				}
				return
			}
			if err != nil || !slices.Equal(rest, tt.rest) || dashes != tt.dashes {
				t.Errorf("= %q %v %v", rest, dashes, err)
			}
		})
	}
	if _, _, err := new(runOptions).flags().parse([]string{"--help"}); err != errHelp {
		t.Errorf("--help: %v", err)
	}
}

func TestUnknownFlagNamesTheNearest(t *testing.T) {
	_, _, err := new(runOptions).flags().parse([]string{"--memry", "1g"})
	var f *fault
	if !errors.As(err, &f) || f.try != "--memory" {
		t.Errorf("err = %+v", err)
	}
}

func TestSizes(t *testing.T) {
	for in, want := range map[string]int64{
		"1": 1, "512m": 512 << 20, "2g": 2 << 30, "2G": 2 << 30, "1.5k": 1536, "1GiB": 1 << 30, "64kb": 64 << 10, "1t": 1 << 40,
		"": -1, "m": -1, "-1": -1, "0": -1, "1e3": -1, "9999999t": -1, "1.2.3": -1, "0x10": -1, "inf": -1, "5 m": -1,
	} {
		got, err := parseSize(in)
		if (err != nil) != (want == -1) || err == nil && got != want {
			t.Errorf("parseSize(%q) = %d, %v; want %d", in, got, err, want)
		}
		if err == nil {
			if back, err := parseSize(sizeText(got)); err != nil || back != got {
				t.Errorf("sizeText(%d) = %q", got, sizeText(got))
			}
		}
	}
}

func TestTimeText(t *testing.T) {
	for in, want := range map[float64]string{0.5: "500ms", 30: "30s", 120: "2m", 90: "1m30s", 3600: "1h", 36000: "10h", 5400: "1h30m"} {
		if got := timeText(in); got != want {
			t.Errorf("timeText(%v) = %q, want %q", in, got, want)
		}
	}
}

func TestLimitsFromFlags(t *testing.T) {
	var o runOptions
	_, _, err := o.flags().parse(strings.Fields("--memory unlimited --cpus unlimited --pids unlimited --timeout unlimited --disk 1g --output-limit 2m x"))
	want := api.Limits{TimeoutSeconds: -1, MemoryBytes: -1, CPUs: -1, Pids: -1, DiskBytes: 1 << 30, OutputBytes: 2 << 20}
	if err != nil || o.limits != want {
		t.Errorf("limits = %+v, %v", o.limits, err)
	}
}
