package server

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/bermhq/berm/api"
)

func (s *server) execList(w http.ResponseWriter, r *http.Request) error {
	l, err := s.e.Execs(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if l == nil {
		l = []api.Exec{}
	}
	reply(w, http.StatusOK, api.ExecList{Execs: l})
	return nil
}

func (s *server) execGet(w http.ResponseWriter, r *http.Request) error {
	x, err := s.e.GetExec(r.Context(), r.PathValue("id"), r.PathValue("exec"))
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, x)
	return nil
}

// execKill ends a command with all that it started. One that is over is left
// as it is: asking twice is no error.
func (s *server) execKill(w http.ResponseWriter, r *http.Request) error {
	if err := s.e.KillExec(r.Context(), r.PathValue("id"), r.PathValue("exec")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) execSignal(w http.ResponseWriter, r *http.Request) error {
	var req api.SignalRequest
	if err := decode(w, r, &req); err != nil {
		return err
	}
	sig, err := signalNumber(req.Signal)
	if err != nil {
		return err
	}
	if err := s.e.SignalExec(r.Context(), r.PathValue("id"), r.PathValue("exec"), sig); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// signals are the guest's, by name; it is a Linux whatever the host is.
var signals = map[string]int{
	"HUP": 1, "INT": 2, "QUIT": 3, "ILL": 4, "TRAP": 5, "ABRT": 6, "BUS": 7, "FPE": 8, "KILL": 9, "USR1": 10,
	"SEGV": 11, "USR2": 12, "PIPE": 13, "ALRM": 14, "TERM": 15, "STKFLT": 16, "CHLD": 17, "CONT": 18, "STOP": 19,
	"TSTP": 20, "TTIN": 21, "TTOU": 22, "URG": 23, "XCPU": 24, "XFSZ": 25, "VTALRM": 26, "PROF": 27, "WINCH": 28,
	"IO": 29, "PWR": 30, "SYS": 31,
}

func signalNumber(name string) (int, error) {
	if n := signals[strings.TrimPrefix(strings.ToUpper(name), "SIG")]; n != 0 {
		return n, nil
	}
	if n, err := strconv.Atoi(name); err == nil && n > 0 && n <= 64 {
		return n, nil
	}
	return 0, &api.Error{Code: api.CodeBadRequest, Message: fmt.Sprintf("signal: %.20q is no signal", name), Hint: "a name like TERM or a number from 1 to 64"}
}

// execStdin sends the body, as it comes, to a detached command.
func (s *server) execStdin(w http.ResponseWriter, r *http.Request) error {
	q, err := params(r, []string{"end"}, nil)
	if err != nil {
		return err
	}
	end, err := truth(q, "end")
	if err != nil {
		return err
	}
	n, err := s.e.WriteStdin(r.Context(), r.PathValue("id"), r.PathValue("exec"), s.stream(w, r), end)
	if err != nil {
		return err
	}
	reply(w, http.StatusOK, api.Written{Bytes: n})
	return nil
}
