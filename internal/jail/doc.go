// Package jail is the only privileged code in Berm: control groups that hold a
// process from its first instruction, a thread that forks children into an
// otherwise empty root, host uids that no account uses, and the cover over
// /proc. It knows nothing of gVisor, guests, policies or the network; the
// keeper calls it and nothing else does.
//
// Order matters and is the same for every child: cgroups, then fork into new
// namespaces with its own uid and no capabilities, then the cover. A child that
// joined its cgroups later would have left memory and processes outside.
package jail
