/// Repeatable work.
package protocol Workload: AnyObject {
    func cycle()
}

extension Sleepers: Workload {}
extension Timers: Workload {}
