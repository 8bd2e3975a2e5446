package server

import (
	"testing"

	"github.com/bermhq/berm/api"
)

// One tenant uploads few trees at a time, and no other waits for that.
func TestUploads(t *testing.T) {
	u := uses{uploads: map[string]int{}}
	var last func()
	for range maxUploads {
		done, err := u.upload("a")
		if err != nil {
			t.Fatal(err)
		}
		last = done
	}
	if _, err := u.upload("a"); !isCode(err, api.CodeRate) {
		t.Errorf("one too many: %v", err)
	}
	if done, err := u.upload("b"); err != nil {
		t.Errorf("another tenant waits: %v", err)
	} else {
		done()
	}
	last()
	if _, err := u.upload("a"); err != nil || len(u.uploads) != 1 {
		t.Errorf("after one is done: %v, %v", err, u.uploads)
	}
}
