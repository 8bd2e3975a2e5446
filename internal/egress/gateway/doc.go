// Package gateway is the network of one sandbox: gVisor's stack at the far end
// of the sandbox's only wire, DNS, and relays that look at the first bytes of
// each connection. It runs as a process of its own with two descriptors, the
// link and the broker, and can do nothing by itself: every name and every
// connection is the broker's to decide and to make.
package gateway
