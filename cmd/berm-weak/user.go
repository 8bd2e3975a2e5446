package main

// guestUser lets programs be root inside. The template is this host's own, with
// the guest's root granted: `FROM host` and `USER root`.
var guestUser = wall{
	name: "guest-user", without: "programs are root inside",
	template: "berm-weak-root",
}
