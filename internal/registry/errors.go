package registry

import (
	"fmt"
	"strings"
	"unicode"

	"github.com/bermhq/berm/api"
)

// refused is about content that is not what its digest, its size or its kind
// promised.
func refused(what, format string, args ...any) *api.Error {
	return &api.Error{Code: api.CodeTemplateInvalid, Message: what + ": refused: " + fmt.Sprintf(format, args...),
		Hint: "fetch it again; if it stays so, what serves it, or something on the way, changes it"}
}

// unusable is about content that is honest and of no use here.
func unusable(what, hint, format string, args ...any) *api.Error {
	return &api.Error{Code: api.CodeTemplateInvalid, Message: what + ": " + fmt.Sprintf(format, args...), Hint: hint}
}

func tooLarge(what, format string, args ...any) *api.Error {
	return &api.Error{Code: api.CodeTemplateTooLarge, Message: what + ": " + fmt.Sprintf(format, args...),
		Hint: "use a smaller image"}
}

// clean is the text of a stranger on one line of at most max bytes.
func clean(s string, max int) string {
	s = strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if s = strings.Join(strings.Fields(s), " "); len(s) > max {
		s = strings.ToValidUTF8(s[:max], "") + "..."
	}
	return s
}

// human is a size in bytes as people write it.
func human(n int64) string {
	switch {
	case n >= 1<<30:
		return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%d bytes", n)
}
