package main

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bermhq/berm/api"
)

// librarians are the process that keeps templates, and the one that watches over it.
func (s *served) librarians() (worker, watcher int) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		for pid, args := range s.processes("") {
			if strings.HasPrefix(args, "berm librarian ") {
				if strings.HasSuffix(args, " at work") {
					worker = pid
				} else {
					watcher = pid
				}
			}
		}
		if worker != 0 && watcher != 0 {
			return worker, watcher
		}
		if time.Now().After(end) {
			s.t.Fatalf("no librarian in %v", s.processes(""))
		}
	}
}

// TestDaemonLibrarian: the process that keeps templates may end at any time. The
// next call finds the next one; running sandboxes notice nothing.
func TestDaemonLibrarian(t *testing.T) {
	s := serve(t)
	id := s.create(api.CreateRequest{TTLSeconds: 600})
	for range 5 {
		worker, _ := s.librarians()
		syscall.Kill(worker, syscall.SIGKILL)
		var list []api.Template
		s.must(200, "GET", "/v1/templates", nil, &list)
		if next, _ := s.librarians(); next == worker || len(list) == 0 {
			t.Errorf("process %d after %d, and %d templates", next, worker, len(list))
		}
	}
	if a := s.exec(id, "echo on"); a.Stdout != "on\n" {
		t.Errorf("a sandbox from before: %+v", a)
	}
	if !strings.Contains(s.log.String(), "keeps templates has ended") {
		t.Error("the log says nothing of it")
	}
	// Nobody could start the one that watches, so the daemon says so and ends.
	_, watcher := s.librarians()
	syscall.Kill(watcher, syscall.SIGKILL)
	if err := s.cmd.Wait(); err == nil {
		t.Error("the daemon ended as if nothing were wrong")
	}
	if !strings.Contains(s.log.String(), "keeps templates is gone") {
		t.Errorf("it said: %s", tail(s.log.String(), 400))
	}
	s.start()
	if a := s.exec(id, "echo still on"); a.Stdout != "still on\n" {
		t.Errorf("a sandbox from before: %+v", a)
	}
}
