package main

// jailWalls are taken out where the processes of a sandbox are put up on the host.
var jailWalls []wall
