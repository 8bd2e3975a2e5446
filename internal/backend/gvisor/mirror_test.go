package gvisor

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"gvisor.dev/gvisor/runsc/boot"
	"gvisor.dev/gvisor/runsc/cmd"
	"gvisor.dev/gvisor/runsc/config"
	"gvisor.dev/gvisor/runsc/flag"
	"gvisor.dev/gvisor/runsc/specutils"

	"github.com/bermhq/berm/api"
	"github.com/bermhq/berm/internal/backend"
	"github.com/bermhq/berm/internal/image"
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

// The link is what gVisor's own command would ask for, with our numbers.
func TestMirroredLink(t *testing.T) {
	b, err := json.Marshal(withLink())
	if err != nil {
		t.Fatal(err)
	}
	var theirs boot.CreateLinksAndRoutesArgs
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&theirs); err != nil {
		t.Fatalf("gVisor does not know what we send: %v", err)
	}
	for name, types := range map[string][2]reflect.Type{
		"link": {reflect.TypeFor[fdBasedLink](), reflect.TypeFor[boot.FDBasedLink]()}, "neighbour": {reflect.TypeFor[neighbor](), reflect.TypeFor[boot.Neighbor]()},
		"default": {reflect.TypeFor[defaultRoute](), reflect.TypeFor[boot.DefaultRoute]()}, "route": {reflect.TypeFor[route](), reflect.TypeFor[boot.Route]()},
	} {
		fields := func(x reflect.Type) (out []string) {
			for i := range x.NumField() {
				out = append(out, x.Field(i).Name+" "+x.Field(i).Type.Kind().String())
			}
			return out
		}
		if ours, theirs := fields(types[0]), fields(types[1]); !slices.Equal(ours, theirs) {
			t.Errorf("%s:\n%q\nwant\n%q", name, ours, theirs)
		}
	}
	_, all4, _ := net.ParseCIDR("0.0.0.0/0")
	_, all6, _ := net.ParseCIDR("::/0")
	_, net4, _ := net.ParseCIDR("192.0.0.0/29")
	_, net6, _ := net.ParseCIDR("fd62:6572:6d00::/64")
	gw4, gw6, mac := net.ParseIP("192.0.0.1").To4(), net.ParseIP("fd62:6572:6d00::1"), net.HardwareAddr{2, 'b', 'e', 'r', 'm', 1}
	want := boot.CreateLinksAndRoutesArgs{
		LoopbackLinks: theirs.LoopbackLinks,
		FDBasedLinks: []boot.FDBasedLink{{
			Name: "eth0", InterfaceIndex: 2, MTU: 60000, LinkAddress: net.HardwareAddr{2, 'b', 'e', 'r', 'm', 2},
			Addresses:         []boot.IPWithPrefix{{Address: net.ParseIP("192.0.0.2").To4(), PrefixLen: 29}, {Address: net.ParseIP("fd62:6572:6d00::2"), PrefixLen: 64}},
			Routes:            []boot.Route{{Destination: *net4}, {Destination: *net6}},
			RXChecksumOffload: true, QDisc: config.QDiscFIFO, NumChannels: 1, ProcessorsPerChannel: 1,
			Neighbors: []boot.Neighbor{{IP: gw4, HardwareAddr: mac}, {IP: gw6, HardwareAddr: mac}},
		}},
		Defaultv4Gateway: boot.DefaultRoute{Name: "eth0", Route: boot.Route{Destination: *all4, Gateway: gw4}},
		Defaultv6Gateway: boot.DefaultRoute{Name: "eth0", Route: boot.Route{Destination: *all6, Gateway: gw6}},
	}
	got, _ := json.Marshal(theirs) // an address has more than one form in memory
	should, _ := json.Marshal(want)
	if !bytes.Equal(got, should) {
		t.Errorf("link:\n%s\nwant\n%s", got, should)
	}
	// The loopback is as without it.
	alone, _ := json.Marshal(loopbackOnly().LoopbackLinks)
	if with, _ := json.Marshal(withLink().LoopbackLinks); !bytes.Equal(with, alone) {
		t.Errorf("loopback:\n%s\nwant\n%s", with, alone)
	}
	// What gVisor would make of it if nobody said anything.
	global := flag.NewFlagSet("runsc", flag.ContinueOnError)
	config.RegisterFlags(global)
	conf, err := config.NewFromFlags(global)
	if err != nil {
		t.Fatal(err)
	}
	l := want.FDBasedLinks[0]
	if conf.QDisc != l.QDisc || conf.TXChecksumOffload != l.TXChecksumOffload || conf.RXChecksumOffload != l.RXChecksumOffload || conf.GVisorGRO {
		t.Errorf("gVisor's defaults are others now: %+v", conf)
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
	if slices.Contains(s.Process.Capabilities.Bounding, "CAP_SYS_ADMIN") {
		t.Error("a guest of one layer can mount")
	}
}

// A stacked root is made of descriptors as well: each mount that gVisor would
// look for on the host has a configuration that says it does not.
func TestMirroredStack(t *testing.T) {
	if maxLayers != image.MaxLayers {
		t.Errorf("%d layers here, %d in images", maxLayers, image.MaxLayers)
	}
	for _, n := range []int{1, 2, maxLayers} {
		s := testSpec()
		s.Track = true
		for len(s.Upper) < n-1 {
			s.Upper = append(s.Upper, "y")
		}
		b, err := marshalSpec(s)
		if err != nil {
			t.Fatal(err)
		}
		var theirs specs.Spec
		if err := json.Unmarshal(b, &theirs); err != nil {
			t.Fatal(err)
		}
		var confs boot.GoferMountConfFlags
		if err := confs.Set(mountConfs(s)); err != nil {
			t.Fatal(err)
		}
		at, files := 1, 1
		for _, m := range theirs.Mounts {
			if strings.HasPrefix(m.Source, "/") {
				t.Errorf("mount %+v reaches the host", m)
			}
			if !specutils.HasMountConfig(m) {
				continue
			}
			c := confs[at]
			at++
			if c.ShouldUseErofs() {
				files++
			}
			if c.ShouldUseLisafs() || m.Type == "bind" != c.ShouldUseTmpfs() || c.ShouldUseErofs() != specutils.IsErofsMount(m) || c.IsFilestorePresent() != c.ShouldUseTmpfs() {
				t.Errorf("mount %+v is %v", m, c)
			}
			if m.Type == "bind" && (m.Destination != upperMount || !slices.Contains(m.Options, fmt.Sprintf("size=%d", diskSize(s.Limits)))) {
				t.Errorf("the writable layer is %+v", m)
			}
		}
		if at != len(confs) || files != n+1 || strings.Count(imageFDs(s), "image") != n+1 || len(new(Backend).images(s)) != n+1 {
			t.Errorf("%d layers: %d of %d configurations used, %d files", n, at, len(confs), files)
		}
		if confs[0].ShouldUseOverlayfs() || theirs.Process.Args[0] != stackedAgent || theirs.Process.Args[2] != strconv.Itoa(n) {
			t.Errorf("root %v, process %q", confs[0], theirs.Process.Args)
		}
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
