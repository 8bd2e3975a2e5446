package api

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseSize reads a size as flags and files have it: bytes, or a number with k,
// m, g or t (powers of 1024), as in 512m.
func ParseSize(s string) (int64, error) {
	num, shift := strings.ToLower(strings.TrimSpace(s)), 0
	num = strings.TrimSuffix(strings.TrimSuffix(num, "b"), "i")
	if i := strings.IndexAny(num, "kmgt"); i >= 0 && i == len(num)-1 {
		shift = 10 * (1 + strings.IndexByte("kmgt", num[i]))
		num = num[:i]
	}
	f, err := strconv.ParseFloat(num, 64)
	if err != nil || f < 0 || f*float64(int64(1)<<shift) >= 1<<62 || f != f {
		return 0, fmt.Errorf("%.40q is not a size: use bytes, or 512m, 2g", s)
	}
	return int64(f * float64(int64(1)<<shift)), nil
}

// ParseTime reads a time as flags and files have it: 30s, 2m, 24h, 7d, or
// seconds.
func ParseTime(s string) (time.Duration, error) {
	s = strings.TrimSpace(s)
	if f, err := strconv.ParseFloat(s, 64); err == nil && f >= 0 && f < 1e9 {
		return time.Duration(f * float64(time.Second)), nil
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if f, err := strconv.ParseFloat(days, 64); err == nil && f >= 0 && f < 1e5 {
			return time.Duration(f * 24 * float64(time.Hour)), nil
		}
	}
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		return d, nil
	}
	return 0, fmt.Errorf("%.40q is not a time: use 30s, 2m, 24h, 7d", s)
}
