import java.time.Duration;
import java.time.Instant;
import java.util.Map;
import java.util.TimeZone;
import net.javacrumbs.shedlock.core.LockConfiguration;
import net.javacrumbs.shedlock.core.LockExtender;
import net.javacrumbs.shedlock.core.LockProvider;
import net.javacrumbs.shedlock.provider.jdbctemplate.JdbcTemplateLockProvider;
import net.javacrumbs.shedlock.spring.annotation.EnableSchedulerLock;
import net.javacrumbs.shedlock.spring.annotation.SchedulerLock;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.scheduling.annotation.EnableScheduling;
import org.springframework.scheduling.annotation.SchedulingConfigurer;
import org.springframework.scheduling.config.CronTask;
import org.springframework.scheduling.support.CronTrigger;

/**
 * ShedLock in a Spring Boot application, on the table TABLE.  The annotations are those of @SpringBootApplication
 * but for the search for components, which needs a package.
 */
@Configuration
@EnableAutoConfiguration
@EnableScheduling
@EnableSchedulerLock(defaultLockAtMostFor = "10m")
public class SpringShedLock implements Replica.Tool {
    @Override
    public void run() throws Exception {
        SpringApplication application = new SpringApplication(SpringShedLock.class);
        application.setDefaultProperties(Map.of(
                "spring.main.banner-mode", "off",
                "spring.datasource.url", Replica.URL,
                "spring.datasource.username", "postgres",
                // Its documentation advises a time a little less than the time between two runs.
                "at-least", Replica.CRON.isEmpty() ? "700ms" : Replica.LEASE + "s"));
        LockProvider provider = application.run().getBean(LockProvider.class);
        if (Replica.RATE) {
            Replica.awaitStart();
            Replica.rate(() -> {
                provider.lock(new LockConfiguration(
                        Instant.now(), Replica.GROUP, Duration.ofSeconds(Replica.LEASE), Duration.ZERO))
                        .ifPresent(lock -> lock.unlock());
                return 1;
            });
        }
    }

    @Bean
    public LockProvider lockProvider(JdbcTemplate template) {
        return new JdbcTemplateLockProvider(JdbcTemplateLockProvider.Configuration.builder()
                .withJdbcTemplate(template)
                .withTableName(System.getenv("TABLE"))
                // Its default is the name of the host.  Here each process stands for a host.
                .withLockedByValue(Replica.number)
                .usingDbTime()
                .build());
    }

    @Bean
    public Job job() {
        return new Job();
    }

    /** What @Scheduled(cron, zone) does, for as many jobs as are wanted.  Spring calls it when all else is ready. */
    @Bean
    public SchedulingConfigurer schedule(Job job, JdbcTemplate template) {
        return registrar -> {
            // The pool connects when it is used for the first time.
            template.queryForObject("SELECT 1", Integer.class);
            if (!Replica.RATE) {
                Replica.awaitStart();
                CronTrigger trigger = new CronTrigger(Replica.cron(), TimeZone.getTimeZone(Replica.ZONE));
                for (String name : Replica.NAMES) {
                    registrar.addCronTask(new CronTask(() -> job.work(name), trigger));
                }
            }
        };
    }

    public static class Job {
        private static final boolean EXTENDS = System.getenv("EXTEND") != null;

        private static void extend() {
            LockExtender.extendActiveLock(Duration.ofSeconds(Replica.LEASE), Duration.ZERO);
        }

        @SchedulerLock(name = "#{#name}", lockAtMostFor = "${LEASE}s", lockAtLeastFor = "${at-least}")
        public void work(String name) {
            // It is not told for which tick it runs.
            Replica.work((long) Replica.now(), EXTENDS ? Job::extend : () -> { });
        }
    }
}
