package build

// finish makes what was unpacked of packages a system.
const finish = `dpkg --configure -a`
