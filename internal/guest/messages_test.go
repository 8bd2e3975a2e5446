package guest

import (
	"bytes"
	"reflect"
	"slices"
	"testing"
	"time"
)

type message interface {
	Append([]byte) []byte
	Decode([]byte) bool
}

// full has every message with every field set; a field that its codec forgets
// fails the round trip.
var full = []message{
	&Open{Method: 3, Window: 1 << 20, Body: []byte("body")},
	&Reply{Errno: 2, Text: "no such file", Body: []byte{0, 1}},
	&Note{Signal: 15, Rows: 40, Cols: 132},
	&Hello{Version: 1, Agent: "1.2", Boot: Boot{Hostname: "h", Kernel: "k", StartNanos: 1 << 60, PID: 1}},
	&Start{ID: "x", Args: []string{"a", "", "b"}, Env: []string{"A=b"}, Dir: "/d", UID: 1000, GID: 1 << 31, Stdin: true, TTY: true, Rows: 1, Cols: 65535, Pids: 128, MemoryBytes: 1 << 40, Keep: 1 << 33, TimeoutMS: 5, Flood: 1 << 34, Hold: true},
	&Exit{NotStarted: "no", Errno: 2, Code: 255, Signal: 9, Caps: []string{CapMemory, CapDisk}, EndedBy: EndedMemory, Background: true, PidsPeak: 3, MemoryPeak: 4, DiskPeak: 5, ElapsedNanos: 6},
	&FileInfo{Path: "/p", Kind: KindSymlink, Size: 9, Mode: 0o4755, ModTime: time.Unix(1, 2), Nlink: 2, LinkTarget: "t", UID: 3, GID: 4},
	&FileRequest{Path: "/p", To: "/t", Mode: 0o644, UID: 1, GID: 2, Recursive: true, Depth: 3, Limit: 4, Paths: []string{"a", "b"}, Keep: true},
	&ProcessRequest{ID: "x", Offset: 1 << 40, Follow: true, Signal: 9, Rows: 1, Cols: 2, CloseStdin: true},
	&ProcessInfo{ID: "x", PID: 7, Args: []string{"a", ""}, StartedNanos: 1 << 60, Running: true, Kept: true, OutputBytes: 1 << 40, Exit: Exit{PidsPeak: 3}},
	&DialRequest{Port: 65535},
	&PortsReply{Ports: []int{1, 65535}},
	&FileEvent{Path: "/p", Op: OpRename},
	&KillReply{Killed: 1, Left: 2},
	&Usage{Tasks: 1, AgentTasks: 2, MemoryBytes: 3, MemoryTotal: 4, DiskBytes: 5, DiskTotal: 6, Processes: 7},
	&Identity{Hostname: "h", Env: []string{"A=b"}, UnixNanos: -1, Seed: []byte("seed")},
}

func fresh(m message) message { return reflect.New(reflect.TypeOf(m).Elem()).Interface().(message) }

func TestRoundTrip(t *testing.T) {
	for _, m := range full {
		name := reflect.TypeOf(m).Elem().Name()
		v := reflect.ValueOf(m).Elem()
		for i := range v.NumField() {
			if v.Field(i).IsZero() {
				t.Errorf("%s.%s is not set in the table", name, v.Type().Field(i).Name)
			}
		}
		b := m.Append([]byte("before"))[len("before"):]
		got := fresh(m)
		if !got.Decode(b) || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: got %+v, want %+v", name, got, m)
		}
		// A newer end may add fields.
		more := appendString(appendUint(b[:len(b):len(b)], 900, 7), 901, "later")
		more = append(more, 0xbd, 0x38, 1, 2, 3, 4, 0xc1, 0x38, 1, 2, 3, 4, 5, 6, 7, 8) // 903: fixed32, 904: fixed64
		if got = fresh(m); !got.Decode(more) || !reflect.DeepEqual(got, m) {
			t.Errorf("%s: unknown fields: got %+v", name, got)
		}
		for i := range b {
			fresh(m).Decode(b[:i]) // must not panic
		}
	}
}

func TestEncoding(t *testing.T) {
	// By hand, from the description of the protobuf encoding.
	n := Note{Signal: 150, Rows: 1}
	if got, want := n.Append(nil), []byte{0x08, 0x96, 0x01, 0x10, 0x01}; !bytes.Equal(got, want) {
		t.Errorf("Note: % x, want % x", got, want)
	}
	i := Identity{Hostname: "testing", UnixNanos: -2}
	want := append([]byte{0x0a, 7}, "testing"...)
	want = append(want, 0x18, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01)
	if got := i.Append(nil); !bytes.Equal(got, want) {
		t.Errorf("Identity: % x, want % x", got, want)
	}
}

func TestRefused(t *testing.T) {
	for name, m := range map[string]message{
		"exit code":      &Exit{Code: 256},
		"negative code":  &Exit{Code: -1},
		"signal":         &Exit{Signal: 65},
		"cap":            &Exit{Caps: []string{"patience"}},
		"same cap twice": &Exit{Caps: []string{CapDisk, CapDisk}},
		"many caps":      &Exit{Caps: []string{CapDisk, CapMemory, CapProcesses, CapDisk}},
		"ended by":       &Exit{EndedBy: "host-failure"},
		"peak":           &Exit{PidsPeak: -1},
		"kind of file":   &FileInfo{Kind: "door"},
		"size of file":   &FileInfo{Kind: KindFile, Size: -1},
		"mode of file":   &FileInfo{Kind: KindFile, Mode: 1 << 20},
		"usage":          &Usage{Tasks: -1},
		"kill":           &KillReply{Left: -1},
		"lost where":     &FileEvent{Path: "/x", Op: OpLost},
		"event":          &FileEvent{Path: "/x", Op: "open"},
		"relative event": &FileEvent{Path: "x", Op: OpWrite},
		"high port":      &PortsReply{Ports: []int{65536}},
		"many ports":     &PortsReply{Ports: slices.Repeat([]int{7}, maxPorts+1)},
		"runs and ended": &ProcessInfo{Running: true, Exit: Exit{Code: 1}},
		"process's exit": &ProcessInfo{Exit: Exit{Code: -1}},
		"output":         &ProcessInfo{OutputBytes: -1},
		"pid":            &ProcessInfo{PID: -1},
		"many arguments": &ProcessInfo{Args: slices.Repeat([]string{"a"}, maxArgs+1)},
		"errno":          &Reply{Errno: -1},
	} {
		if fresh(m).Decode(m.Append(nil)) {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, b := range [][]byte{{0}, {0x80}, {0x08}, {0x0a, 5, 'x'}, {0x0b}, {0x0c}, {0x0f}, bytes.Repeat([]byte{0xff}, 20),
		{0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}} {
		for _, m := range full {
			if fresh(m).Decode(b) {
				t.Errorf("%T: accepted % x", m, b)
			}
		}
	}
}

// FuzzMessages: whatever decodes encodes to something that decodes the same.
func FuzzMessages(f *testing.F) {
	for i, m := range full {
		f.Add(i, m.Append(nil))
	}
	f.Fuzz(func(t *testing.T, i int, b []byte) {
		m := fresh(full[uint(i)%uint(len(full))])
		if !m.Decode(b) {
			return
		}
		again, once := fresh(m), m.Append(nil)
		if _, isFile := m.(*FileInfo); isFile && len(once) > maxGuestString {
			return
		}
		switch m.(type) {
		case *Hello, *ProcessInfo, *FileEvent:
			if len(once) > maxGuestString {
				return
			}
		}
		if !again.Decode(once) || !bytes.Equal(again.Append(nil), once) {
			t.Errorf("%+v became %+v", m, again)
		}
	})
}
