package server

func (s *server) logsRoutes() map[string]handler { return nil }
