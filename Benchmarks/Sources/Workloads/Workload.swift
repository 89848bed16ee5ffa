/// Something that is done again and again.
package protocol Workload: AnyObject {
    func cycle()
}

extension Sleepers: Workload {}
extension Timers: Workload {}
