package report

import (
	"reflect"
	"strings"

	"github.com/bermhq/berm/attack"
)

// maxText bounds one text of a report that is shown. Evidence of our own is
// shorter.
const maxText = 4 << 10

// clean is a copy of a report in which every text is one visible line: whatever
// field a stranger hides something in, no form has to think of it.
func clean(rep attack.Report) attack.Report {
	return scrub(reflect.ValueOf(rep)).Interface().(attack.Report)
}

func scrub(v reflect.Value) reflect.Value {
	out := reflect.New(v.Type()).Elem()
	switch v.Kind() {
	case reflect.String:
		out.SetString(plain(v.String()))
	case reflect.Struct:
		out.Set(v) // for what is not exported, as in time.Time
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				out.Field(i).Set(scrub(v.Field(i)))
			}
		}
	case reflect.Pointer:
		if !v.IsNil() {
			out.Set(reflect.New(v.Type().Elem()))
			out.Elem().Set(scrub(v.Elem()))
		}
	case reflect.Slice:
		out.Set(reflect.MakeSlice(v.Type(), v.Len(), v.Len()))
		for i := range v.Len() {
			out.Index(i).Set(scrub(v.Index(i)))
		}
	case reflect.Map:
		out.Set(reflect.MakeMap(v.Type()))
		for it := v.MapRange(); it.Next(); {
			out.SetMapIndex(scrub(it.Key()), scrub(it.Value()))
		}
	default:
		out.Set(v)
	}
	return out
}

func plain(s string) string {
	if len(s) > maxText {
		s = strings.ToValidUTF8(s[:maxText], "") + "..."
	}
	return attack.Plain(s)
}
