package template

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/bermhq/berm/api"
)

// Bounds on what a maker says: it reads what strangers wrote, and may be theirs.
const (
	maxReply    = 256 << 10
	maxMessage  = 2000
	maxLayers   = 512
	maxWords    = 1000 // of a configuration
	maxPhases   = 100
	progressGap = 100 * time.Millisecond
)

var errReply = errors.New("it does not say what a maker says")

// hear reads the lines of a maker up to its answer.
func hear(r io.Reader, progress func(api.TemplateProgress)) (reply, error) {
	in := bufio.NewReaderSize(r, maxReply)
	var last time.Time
	phase, phases := "", 0
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			if errors.Is(err, bufio.ErrBufferFull) {
				err = errReply
			}
			return reply{}, err
		}
		m, err := parseReply(line)
		if err != nil || m.Progress == nil {
			return m, err
		}
		turn := m.Progress.Phase != phase && phases < maxPhases
		if now := time.Now(); progress != nil && (turn || now.Sub(last) >= progressGap) {
			if last, phase = now, m.Progress.Phase; turn {
				phases++
			}
			progress(*m.Progress)
		}
	}
}

// makerCodes are the errors that a maker may have.
var makerCodes = []string{api.CodeTemplateInvalid, api.CodeTemplateTooLarge, api.CodeHostFailure, api.CodeTemplateNotFound, api.CodeBadRequest}

// parseReply reads one line, and believes nothing that could not be so.
func parseReply(line []byte) (m reply, err error) {
	if len(line) > maxReply || json.Unmarshal(line, &m) != nil {
		return reply{}, errReply
	}
	count := 0
	for _, is := range []bool{m.Progress != nil, m.Error != nil, m.Made != nil} {
		if is {
			count++
		}
	}
	if count != 1 {
		return reply{}, errReply
	}
	switch {
	case m.Progress != nil:
		p := m.Progress
		if p.Done < 0 || p.Total < 0 {
			return reply{}, errReply
		}
		p.Phase, p.Item = plain(p.Phase, 40), plain(p.Item, 200)
	case m.Error != nil:
		e := m.Error
		if !slices.Contains(makerCodes, e.Code) {
			return reply{}, fmt.Errorf("%w: an error %.40q", errReply, e.Code)
		}
		m.Error = &api.Error{Code: e.Code, Message: plain(e.Message, maxMessage), Hint: plain(e.Hint, maxMessage)}
	default:
		if !m.Made.sane() {
			return reply{}, errReply
		}
	}
	return m, nil
}

// plain is a text that a terminal may be shown.
func plain(s string, most int) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
	return s[:min(len(s), most)]
}

var (
	digestForm   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	platformForm = regexp.MustCompile(`^[a-z0-9]{1,20}/[a-z0-9._-]{1,20}(/[a-z0-9._-]{1,20})?$`)
)

func (m *made) sane() bool {
	a := m.Account
	if m.Bytes < 0 || m.Inodes < 0 || m.Dropped.Devices < 0 || m.Dropped.Attributes < 0 ||
		a.Home != "" && !strings.HasPrefix(a.Home, "/") || !word(a.Home, 4096) {
		return false
	}
	i := m.Image
	if i == nil {
		return true
	}
	if !word(i.Ref, 512) || i.Digest != "" && !digestForm.MatchString(i.Digest) || i.Platform != "" && !platformForm.MatchString(i.Platform) ||
		i.Layers < 0 || i.Layers > maxLayers {
		return false
	}
	return saneConfig(i.Config)
}

// saneConfig bounds what an image says of its processes, wherever it was read.
func saneConfig(c api.TemplateConfig) bool {
	if !word(c.User, 256) || !word(c.Workdir, 4096) {
		return false
	}
	total := 0
	for _, list := range [][]string{c.Env, c.Entrypoint, c.Cmd} {
		if len(list) > maxWords {
			return false
		}
		for _, s := range list {
			if total += len(s); strings.ContainsRune(s, 0) || total > maxReply {
				return false
			}
		}
	}
	return !slices.ContainsFunc(c.Env, func(kv string) bool {
		name, _, ok := strings.Cut(kv, "=")
		return !ok || name == ""
	})
}

// word is a text without anything that ends a line or a string.
func word(s string, most int) bool {
	return len(s) <= most && !strings.ContainsFunc(s, unicode.IsControl)
}
