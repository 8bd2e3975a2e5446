package main

func lieAsGateway() {}
