package server

func (s *server) proxyRoutes() map[string]handler { return nil }
