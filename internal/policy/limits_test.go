package policy

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/bermhq/berm/api"
)

func TestLimits(t *testing.T) {
	for _, tt := range []struct {
		name string
		in   api.Limits
		rule string // of the refusal; "" means allowed
	}{
		{"defaults", api.Limits{}, ""},
		{"unlimited where it may be", api.Limits{TimeoutSeconds: -1, MemoryBytes: -1, CPUs: -1, Pids: -1}, ""},
		{"disk unlimited", api.Limits{DiskBytes: -1}, "limit.disk"},
		{"output unlimited", api.Limits{OutputBytes: -1}, "limit.output"},
		{"negative memory", api.Limits{MemoryBytes: -2}, "limit.memory"},
		{"tiny memory", api.Limits{MemoryBytes: 1 << 20}, "limit.memory"},
		{"huge memory", api.Limits{MemoryBytes: math.MaxInt64}, "limit.memory"},
		{"no number", api.Limits{CPUs: math.NaN()}, "limit.cpus"},
		{"infinite time", api.Limits{TimeoutSeconds: math.Inf(1)}, "limit.timeout"},
		{"short time", api.Limits{TimeoutSeconds: 0.001}, ""},
		{"too many tasks", api.Limits{Pids: 1 << 30}, "limit.pids"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, v := Limits(tt.in)
			if v.Allow != (tt.rule == "") || !v.Allow && v.Rule != tt.rule {
				t.Errorf("Limits = %+v, want rule %q", v, tt.rule)
			}
			var e *api.Error
			if err := v.Err(); (err != nil) != (tt.rule != "") || err != nil && (!errors.As(err, &e) || e.Code != api.CodeLimitInvalid) {
				t.Errorf("Err = %v", err)
			}
		})
	}
}

func TestLimitsInWords(t *testing.T) {
	for _, tt := range []struct {
		in        api.Limits
		says, fix string
	}{
		{api.Limits{MemoryBytes: 1 << 20}, "memory: 1m is outside 32m to 16t", "--memory 32m"},
		{api.Limits{MemoryBytes: 1 << 45}, "memory: 32t is outside 32m to 16t", "--memory 16t"},
		{api.Limits{DiskBytes: 1000}, "disk: 1000 is outside 1m to 16t", "--disk 1m"},
		{api.Limits{TimeoutSeconds: 360000000}, "timeout: 100000h is outside 0s to 30 days", "--timeout 720h"},
		{api.Limits{TimeoutSeconds: -2}, "timeout: -2s is outside 0s to 30 days", "--timeout 30s"},
		{api.Limits{CPUs: 5000}, "cpus: 5000 is outside 0.01 to 1024", "--cpus 1024"},
		{api.Limits{Pids: 1 << 30}, "pids: 1073741824 is outside 1 to 1048576", "--pids 1048576"},
		{api.Limits{OutputBytes: 1 << 40}, "output-limit: 1t is outside 1 to 1g", "--output-limit 1g"},
	} {
		if _, v := Limits(tt.in); v.Reason != tt.says || v.Fix != tt.fix {
			t.Errorf("%+v: %q, %q", tt.in, v.Reason, v.Fix)
		}
	}
}

func TestTags(t *testing.T) {
	many := map[string]string{}
	for i := range MaxTags + 1 {
		many[strings.Repeat("k", i+1)] = ""
	}
	for _, tt := range []struct {
		name string
		in   map[string]string
		ok   bool
	}{
		{"none", nil, true},
		{"plain", map[string]string{"session": "a b", "run_id": "1"}, true},
		{"empty key", map[string]string{"": "v"}, false},
		{"control", map[string]string{"k": "a\x1b[2J"}, false},
		{"long", map[string]string{"k": strings.Repeat("v", MaxTagBytes)}, false},
		{"many", many, false},
	} {
		if got := Tags(tt.in).Allow; got != tt.ok {
			t.Errorf("%s: Allow = %v", tt.name, got)
		}
	}
}
