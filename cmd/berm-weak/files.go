package main

// fileWalls stand where files and words come out.
var fileWalls []wall
