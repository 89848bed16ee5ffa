package import NightbellCore

extension Counters {
    /// Adds the counters of another run.
    package static func += (left: inout Counters, right: Counters) {
        left.wakes += right.wakes
        left.wakesSocket += right.wakesSocket
        left.wakesKeepAlive += right.wakesKeepAlive
        left.wakesRequest += right.wakesRequest
        left.wakesClientMessage += right.wakesClientMessage
        left.suspensions += right.suspensions
        left.suspensionsForced += right.suspensionsForced
        left.suspensionsCancelled += right.suspensionsCancelled
        left.suspensionsFailed += right.suspensionsFailed
        left.keepAliveRuns += right.keepAliveRuns
        left.keepAliveLate += right.keepAliveLate
        left.overrunsEnteringBackground += right.overrunsEnteringBackground
        left.overrunsPrepare += right.overrunsPrepare
        left.overrunsWake += right.overrunsWake
        left.overrunsBackgroundTasks += right.overrunsBackgroundTasks
        left.overrunsTermination += right.overrunsTermination
        left.wakeLimitExceeded += right.wakeLimitExceeded
        left.socketsAdopted += right.socketsAdopted
        left.socketsRefused += right.socketsRefused
        left.asleepNanoseconds += right.asleepNanoseconds
    }
}
