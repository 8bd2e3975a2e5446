package gvisor

import (
	"bytes"
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
)

// What we say to gVisor without linking it is held against gVisor's own types
// here, where the test may link it.

func TestMirroredCalls(t *testing.T) {
	if methodNetwork != boot.NetworkCreateLinksAndRoutes || methodStart != boot.ContMgrRootContainerStart ||
		methodPause != boot.ContMgrPause || methodResume != boot.ContMgrResume {
		t.Error("gVisor renamed a method")
	}
	b, err := json.Marshal(loopbackOnly())
	if err != nil {
		t.Fatal(err)
	}
	var theirs boot.CreateLinksAndRoutesArgs
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&theirs); err != nil {
		t.Fatalf("gVisor does not know what we send: %v", err)
	}
	want, err := json.Marshal([]boot.LoopbackLink{boot.DefaultLoopbackLink})
	if err != nil {
		t.Fatal(err)
	}
	got, _ := json.Marshal(theirs.LoopbackLinks)
	if !bytes.Equal(got, want) {
		t.Errorf("loopback:\n%s\nwant\n%s", got, want)
	}
	theirs.LoopbackLinks = nil
	if !reflect.DeepEqual(theirs, boot.CreateLinksAndRoutesArgs{}) {
		t.Errorf("more than a loopback link is asked for: %+v", theirs)
	}
}

func testSpec() backend.Spec {
	return backend.Spec{ID: "sabcdefghijklmnopqrstuvwx", Image: "x", Hostname: "h", Limits: api.Limits{}.WithDefaults()}
}

func TestMirroredSpec(t *testing.T) {
	b, err := marshalSpec(testSpec())
	if err != nil {
		t.Fatal(err)
	}
	var s specs.Spec
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&s); err != nil {
		t.Fatalf("not an OCI specification: %v", err)
	}
	if !s.Process.NoNewPrivileges || len(s.Process.Env) != 0 || s.Process.Args[0] != agentPath {
		t.Errorf("process %+v", s.Process)
	}
	for _, m := range s.Mounts {
		if m.Type == "bind" || strings.HasPrefix(m.Source, "/") {
			t.Errorf("mount %+v reaches the host", m)
		}
	}
	var types []string
	for _, n := range s.Linux.Namespaces {
		types = append(types, string(n.Type))
	}
	slices.Sort(types)
	if got := strings.Join(types, " "); got != "ipc mount network pid uts" {
		t.Errorf("namespaces %s", got)
	}
}

// Every argument is one that gVisor knows, and says what we mean by it.
func TestMirroredArgs(t *testing.T) {
	args := bootArgs(testSpec(), 1)
	for i, a := range args {
		args[i] = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(a, "7")
	}
	at := slices.Index(args, "boot")
	global := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(global)
	if err := global.Parse(args[1:at]); err != nil {
		t.Fatal(err)
	}
	conf, err := config.NewFromFlags(global)
	if err != nil {
		t.Fatal(err)
	}
	if conf.DirectFS || conf.Network != config.NetworkNone || conf.Platform != "systrap" || conf.Debug ||
		conf.HostUDS != config.HostUDSNone || conf.HostFifo != config.HostFifoNone || conf.NVProxy || conf.EnableRaw || conf.Rootless {
		t.Errorf("gVisor is configured as %+v", conf)
	}
	own := flag.NewFlagSet("boot", flag.ContinueOnError)
	new(cmd.Boot).SetFlags(own)
	if err := own.Parse(args[at+1:]); err != nil {
		t.Fatal(err)
	}
	if own.NArg() != 1 || own.Arg(0) != testSpec().ID {
		t.Errorf("arguments %q", own.Args())
	}
}
