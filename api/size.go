package api

import (
	"errors"
	"strconv"
	"strings"
	"time"
)

// Why a text is not what it should be; whoever tells people adds the text.
var (
	errSize      = errors.New("is not a size, as in 512m, 2g or 1048576")
	errSizeRange = errors.New("is out of range")
	errTime      = errors.New("is not a time, as in 90s, 30m, 8h or 7d")
	errTimePast  = errors.New("is not a time after now")
)

// ParseSize reads a size as flags and files have it: 1048576, 512m, 1.5g, 2GiB,
// in powers of 1024.
func ParseSize(s string) (int64, error) {
	num := strings.ToLower(s)
	num = strings.TrimSuffix(strings.TrimSuffix(num, "b"), "i")
	unit := float64(1)
	if num != "" {
		if i := strings.IndexByte("kmgt", num[len(num)-1]); i >= 0 {
			unit = float64(int64(1) << (10 * (i + 1)))
			num = num[:len(num)-1]
		}
	}
	if num == "" || strings.Trim(num, "0123456789.") != "" {
		return 0, errSize
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil {
		return 0, errSize
	}
	if f *= unit; f >= 1<<62 {
		return 0, errSizeRange
	}
	return int64(f), nil
}

// ParseTime reads a time as flags and files have it: 90s, 1h30m, 7d.
func ParseTime(s string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if f, err := strconv.ParseFloat(days, 64); err == nil && f >= 0 && f < 1e5 {
			return time.Duration(f * 24 * float64(time.Hour)), nil
		}
	}
	d, err := time.ParseDuration(s)
	switch {
	case err != nil:
		return 0, errTime
	case d < 0:
		return 0, errTimePast
	}
	return d, nil
}
