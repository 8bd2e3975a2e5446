package keeper

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// What ended while no daemon listened is kept in a file when the keeper itself
// ends, so that the next daemon still hears of it.
const (
	pastFile = "ended.json"
	maxSaved = 8 << 20
)

// savePast writes what nobody has noted. Not being able to costs reasons, and
// no sandbox, so it is no error.
func (k *Keeper) savePast() {
	k.mu.Lock()
	past := k.past
	k.mu.Unlock()
	path := filepath.Join(k.cfg.StateDir, pastFile)
	if len(past) == 0 {
		os.Remove(path)
		return
	}
	b, err := json.Marshal(past)
	if err != nil {
		return
	}
	f, err := os.CreateTemp(k.cfg.StateDir, ".ended-*") // 0600
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if f.Close() == nil && err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		os.Remove(f.Name())
	}
}

// loadPast reads what savePast wrote. What is not whole is nothing.
func (k *Keeper) loadPast() {
	f, err := os.OpenFile(filepath.Join(k.cfg.StateDir, pastFile), os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() || fi.Size() > maxSaved {
		return
	}
	var past []Exited
	if json.NewDecoder(io.LimitReader(f, maxSaved)).Decode(&past) != nil {
		return
	}
	for _, e := range past {
		if idShape.MatchString(e.ID) {
			e.Unkept = e.Unkept[:min(len(e.Unkept), maxUnkept)]
			k.past = append(k.past, e)
		}
	}
	k.past = k.past[max(0, len(k.past)-maxPast):]
}
