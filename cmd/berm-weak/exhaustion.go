package main

// exhaustionWalls are caps that no request can lift.
var exhaustionWalls []wall
