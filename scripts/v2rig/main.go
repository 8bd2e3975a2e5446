// Command v2rig boots another kernel: it packs an initramfs that finds a root
// disk, starts QEMU with software emulation, hands what the guest says on its
// second serial line to standard output, and exits as the guest's command did.
// Kernel, root, command, log and time limit are arguments, so that it serves
// whatever needs a machine of its own:
//
//	v2rig initrd -modules TREE -busybox FILE -init FILE -out FILE
//	v2rig boot -kernel FILE -initrd FILE -disk FILE -disk FILE -append "..." -log FILE -limit 10m
//
// Test binaries in the guest write in the format of `go tool test2json`, each
// after a line "##package PATH"; with -json these parts come out as events.
package main

import (
	"fmt"
	"os"
)

func main() {
	if len(os.Args) < 2 {
		fail(fmt.Errorf("say initrd or boot"))
	}
	switch os.Args[1] {
	case "initrd":
		fail(initrd(os.Args[2:]))
	case "boot":
		code, err := boot(os.Args[2:])
		fail(err)
		os.Exit(code)
	default:
		fail(fmt.Errorf("no such part: %s", os.Args[1]))
	}
}

func fail(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "v2rig:", err)
		os.Exit(125)
	}
}
