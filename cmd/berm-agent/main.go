// Command berm-agent is the first process inside a sandbox. It takes no
// arguments: descriptor 0 is the stream to the host.
package main

func main() {}
