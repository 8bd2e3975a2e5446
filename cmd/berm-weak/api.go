package main

// apiWalls stand between tokens and what they may do.
var apiWalls []wall
