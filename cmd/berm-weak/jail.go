package main

// jailWalls are taken out where the processes of a sandbox are put up on the
// host: by weak.go of internal/jail, or of internal/guest, in a build with the tag weak. Nothing in this
// program does it, and without the tag they stand.
var jailWalls = []wall{
	{name: "filter", without: "what is launched has no filter from its birth on", born: true},
	{name: "rights", without: "the processes of a sandbox are root on the host, with all capabilities", born: true},
	{name: "namespaces", without: "the processes of a sandbox have the host's root, network, processes and names", born: true},
	{name: "cgroup", without: "the processes of a sandbox are in no cgroup of its own", born: true},
	{name: "descriptors", without: "the processes of a sandbox have the host's root directory open", born: true},
	{name: "agent-link", without: "who reads what an agent says is not prepared for lies", born: true},
	{name: "gateway-link", without: "whatever a gateway asks for is allowed that a policy could allow", create: openWire.create},
}
