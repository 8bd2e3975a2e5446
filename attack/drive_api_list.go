package attack

import "context"

// The attacks by the API, as cases name them.
func init() {
	for name, attack := range map[string]func(context.Context, *siege) error{
		"api-wider":    driveWider,
		"api-limits":   driveLimits,
		"api-reach":    driveReach,
		"api-life":     driveLife,
		"api-deadline": driveDeadline,
		"api-mint":     driveMint,
		"api-titles":   driveTitles,
		"api-tokens":   driveTokens,
		"api-revoke":   driveRevoke,
		"api-override": driveOverride,
		"api-expired":  driveExpired,
		"api-revoked":  driveRevoked,
		"api-altered":  driveAltered,
		"api-nobody":   driveNobody,
		"api-race":     driveRace,
		"api-node":     driveNode,

		"api-page":     drivePage,
		"api-rebind":   driveRebind,
		"api-pipeline": drivePipeline,
		"api-other":    driveOther,
		"api-flood":    driveFlood,
		"api-paths":    drivePaths,
		"api-loopback": driveLoopback,
		"api-record":   driveRecord,
		"api-erase":    driveErase,
		"api-bury":     driveBury,

		"api-exec-there":  driveExecThere,
		"api-input":       driveInput,
		"api-read-there":  driveReadThere,
		"api-write-there": driveWriteThere,
		"api-end-there":   driveEndThere,
		"api-watch-there": driveWatchThere,
		"api-streams":     driveStreams,
		"api-ports":       drivePorts,
		"api-spellings":   driveSpellings,
		"api-guess":       driveGuess,
		"api-in-name":     driveInName,
		"api-tree":        driveTree,
		"api-replay":      driveReplay,
		"api-nested":      driveNested,
	} {
		drivers[name] = besiege(attack)
	}
}
