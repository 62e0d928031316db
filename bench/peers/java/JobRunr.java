import static org.jobrunr.server.BackgroundJobServerConfiguration.usingStandardBackgroundJobServerConfiguration;

import java.time.ZoneId;
import java.util.concurrent.Semaphore;
import java.util.stream.IntStream;
import org.jobrunr.configuration.JobRunrConfiguration.JobRunrConfigurationResult;
import org.jobrunr.jobs.Job;
import org.jobrunr.jobs.filters.JobServerFilter;
import org.jobrunr.jobs.states.ScheduledState;
import org.jobrunr.scheduling.JobScheduler;
import org.jobrunr.server.BackgroundJobServerConfiguration;
import org.jobrunr.storage.sql.common.SqlStorageProviderFactory;

/** JobRunr: recurring jobs */
public class JobRunr implements Replica.Tool {
    /** How many jobs are there at a time while the rate is measured */
    private static final Semaphore ROOM = new Semaphore(1000);
    private static final ThreadLocal<Job> JOB = new ThreadLocal<>();

    @Override
    public void run() throws Exception {
        BackgroundJobServerConfiguration server = usingStandardBackgroundJobServerConfiguration();
        if (Replica.CRON.isEmpty()) {
            // the least that it accepts; the default is 15 s
            server.andPollIntervalInSeconds(5);
        }
        JobRunrConfigurationResult runr = org.jobrunr.configuration.JobRunr.configure()
                .useStorageProvider(SqlStorageProviderFactory.using(Replica.pool()))
                .withJobFilter(new Filter())
                .useBackgroundJobServer(server, false)
                .initialize();
        JobScheduler scheduler = runr.getJobScheduler();
        if (!Replica.RATE) {
            for (String name : Replica.NAMES) {
                scheduler.scheduleRecurrently(name, Replica.cron(), ZoneId.of(Replica.ZONE), () -> JobRunr.work());
            }
        }
        Replica.awaitStart();
        runr.getBackgroundJobServer().start();
        if (Replica.RATE) {
            Replica.rate(() -> {
                ROOM.acquire(100);
                scheduler.enqueue(IntStream.range(0, 100).boxed(), n -> JobRunr.nothing(n));
                return 100;
            });
        }
    }

    public static void work() {
        // A job that is tried again has been scheduled again.
        long due = JOB.get().getJobStatesOfType(ScheduledState.class).findFirst().orElseThrow().getScheduledAt().getEpochSecond();
        Replica.work(due);
    }

    public static void nothing(int n) {
        ROOM.release();
    }

    /** Tells the work its job, because the context that JobRunr passes to the work has no time at which it is due. */
    public static class Filter implements JobServerFilter {
        @Override
        public void onProcessing(Job job) {
            JOB.set(job);
        }
    }
}
