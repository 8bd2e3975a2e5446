package wire

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"reflect"
	"strings"
	"syscall"
	"testing"
)

func pair(t *testing.T) (a, b *net.UnixConn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_SEQPACKET|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	conns := [2]*net.UnixConn{}
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "pair")
		c, err := net.FileConn(f)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		conns[i] = c.(*net.UnixConn)
		t.Cleanup(func() { c.Close() })
	}
	return conns[0], conns[1]
}

func TestThereAndBack(t *testing.T) {
	a, b := pair(t)
	gateway, broker := NewConn(a), NewConn(b)
	asks := []Ask{
		{Seq: 1, Op: OpName, Name: "one.test", Type: 28},
		{Seq: 2, Op: OpAccept, Flow: 7, To: netip.MustParseAddrPort("[2001:db8::1]:443")},
		{Seq: 3, Op: OpConnect, Flow: 7, Seen: "http", Claim: "one.test", Method: "GET", Path: "/<&>" + strings.Repeat("\x01", MaxPath-4)},
		{Op: OpClose, Flow: 7},
		{Op: OpDenied, Kind: "icmp", Reason: "icmp", Text: "why", To: netip.MustParseAddrPort("192.0.2.1:0"), Count: 3},
	}
	for _, want := range asks {
		if err := gateway.SendAsk(want); err != nil {
			t.Fatal(err)
		}
		if got, err := broker.ReceiveAsk(); err != nil || got != want {
			t.Fatalf("%+v, %v; want %+v", got, err, want)
		}
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	want := Answer{Seq: 3, Allow: true, Addrs: []netip.Addr{netip.MustParseAddr("192.0.2.1")}, TTL: 60}
	if err := broker.SendAnswer(want, int(w.Fd())); err != nil {
		t.Fatal(err)
	}
	w.Close()
	got, fd, err := gateway.ReceiveAnswer()
	if err != nil || !reflect.DeepEqual(got, want) || fd < 0 {
		t.Fatalf("%+v, %d, %v", got, fd, err)
	}
	f := os.NewFile(uintptr(fd), "got")
	if _, err := f.WriteString("x"); err != nil {
		t.Fatal(err)
	}
	f.Close()
	if data, err := io.ReadAll(r); err != nil || string(data) != "x" {
		t.Fatalf("%q, %v: not the descriptor that was sent", data, err)
	}
	if err := broker.SendAnswer(Answer{}, -1); err != nil {
		t.Fatal(err)
	}
	if got, fd, err := gateway.ReceiveAnswer(); err != nil || fd != -1 || got.Seq != 0 {
		t.Fatalf("go: %+v, %d, %v", got, fd, err)
	}
	broker.Close()
	if _, _, err := gateway.ReceiveAnswer(); err != io.EOF {
		t.Fatalf("end: %v", err)
	}
}

func TestAskWithDescriptors(t *testing.T) {
	for _, n := range []int{1, 3, 100} {
		a, b := pair(t)
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(w.Fd())
		}
		if _, _, err := a.WriteMsgUnix([]byte(`{"op":"close","flow":1}`), syscall.UnixRights(fds...), nil); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := NewConn(b).ReceiveAsk(); !errors.Is(err, ErrMessage) {
			t.Errorf("%d descriptors: %v", n, err)
		}
		if data, err := io.ReadAll(r); err != nil || len(data) != 0 { // ends once every copy is closed
			t.Error(err)
		}
		r.Close()
	}
}

func TestMalformedAsks(t *testing.T) {
	long := strings.Repeat("x", MaxPath+1)
	for _, s := range []string{
		``, `null`, `[]`, `"name"`, `{}`, `{"op":"name"}`, `{"op":"none","seq":1}`, `{"op":"close","seq":1}`,
		`{"op":"name","seq":1}{"op":"name","seq":2}`, `{"op":"name","seq":1} x`, `{"op":"name","seq":-1}`, `{"op":"name","seq":1.5}`,
		`{"op":"name","seq":1,"extra":1}`, `{"op":"accept","seq":1,"to":"192.0.2.1"}`, `{"op":"accept","seq":1,"to":"192.0.2.1:70000"}`,
		`{"op":"accept","seq":1,"to":"0x7f.1:80"}`, `{"op":"accept","seq":1,"flow":18446744073709551616}`, `{"op":"accept","seq":1,"flow":-1}`,
		`{"op":"denied","count":-1}`, `{"op":"denied","count":99999999}`, `{"op":"name","seq":1,"type":65536}`,
		`{"op":"name","seq":1,"name":"` + long + `"}`, `{"op":"request","seq":1,"path":"` + long + `"}`, `{"op":"denied","reason":"` + long + `"}`,
		`{"op":"request","seq":1,"method":"` + long + `"}`, `{"op":"request","seq":1,"claim":"` + long + `"}`, `{"op":"request","seq":1,"seen":"` + long + `"}`,
		`{"op":"name","seq":1,"name":` + strings.Repeat("[", 8000) + `}`, `{"op":"name","seq":1}` + strings.Repeat(" ", MaxMessage),
	} {
		if a, err := DecodeAsk([]byte(s)); !errors.Is(err, ErrMessage) {
			t.Errorf("%.60s: %+v, %v", s, a, err)
		}
	}
}

func TestTooLongAMessage(t *testing.T) {
	a, b := pair(t)
	if _, err := a.Write(append([]byte(`{"op":"name","seq":1}`), make([]byte, MaxMessage)...)); err != nil {
		t.Fatal(err)
	}
	if _, err := NewConn(b).ReceiveAsk(); !errors.Is(err, ErrMessage) {
		t.Error(err)
	}
	if err := NewConn(a).SendAnswer(Answer{Text: strings.Repeat("x", MaxMessage)}, -1); !errors.Is(err, ErrMessage) {
		t.Error(err)
	}
}

func FuzzAsk(f *testing.F) {
	f.Add([]byte(`{"op":"name","seq":1,"name":"one.test","type":1}`))
	f.Add([]byte(`{"op":"connect","seq":2,"flow":1,"to":"[::ffff:127.0.0.1]:80","seen":"tls","claim":"one.test","hidden":true}`))
	f.Add([]byte(`{"op":"denied","kind":"udp","reason":"udp","to":"192.0.2.1:53","count":2}`))
	f.Add([]byte(`{"op":"accept","seq":3,"to":"[fe80::1%eth0]:1"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeAsk(data)
		if err != nil {
			if !errors.Is(err, ErrMessage) || a != (Ask{}) {
				t.Fatalf("%+v, %v", a, err)
			}
			return
		}
		again, err := encode(a)
		if err != nil {
			t.Fatalf("%+v was read and cannot be written: %v", a, err)
		}
		if b, err := DecodeAsk(again); err != nil || b != a {
			t.Fatalf("%s: %+v, %v; was %+v", again, b, err, a)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"seq":1,"allow":true,"addrs":["192.0.2.1","2001:db8::1"],"ttl":60}`))
	f.Add([]byte(`{"seq":1,"reason":"no-rule","text":"nothing allows it","fix":"a.test:443"}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := DecodeAnswer(data)
		if err != nil {
			if !errors.Is(err, ErrMessage) {
				t.Fatal(err)
			}
			return
		}
		if again, err := encode(a); err == nil { // what was near the bound may be longer now
			if _, err := DecodeAnswer(again); err != nil {
				t.Fatalf("%s: %v", again, err)
			}
		}
	})
}
